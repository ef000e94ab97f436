"""The generation routes in /openapi.json, which FastAPI cannot see because they are plain ASGI."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from engine_adapters.remote.relay import Route
from gateway.local.tokenization import DetokenizeBody, TokenizeBody
from gateway.relay.body import RelayedBody
from gateway.surface.routes import KEPT_PATHS, PATHS
from gateway.wire.chat_body import ChatBody
from gateway.wire.completions_body import CompletionsBody
from gateway.wire.validation import WireModel

_BODIES: Mapping[Route, tuple[str, type[WireModel]]] = {
    "chat": ("Chat completion", ChatBody),
    "completions": ("Text completion", CompletionsBody),
    "responses": ("Response, by engines behind HTTP", RelayedBody),
    "embeddings": ("Embeddings, by engines behind HTTP", RelayedBody),
    "messages": ("Message, by engines behind HTTP", RelayedBody),
    "count_tokens": ("Tokens of a message, by engines behind HTTP", RelayedBody),
    "rerank": ("Documents in the order of their relevance, by engines behind HTTP", RelayedBody),
    "tokenize": ("Text to token ids", TokenizeBody),
    "detokenize": ("Token ids to text", DetokenizeBody),
}
_KEPT: Mapping[Route, str] = {
    "response": "A response that its engine keeps",
    "response_delete": "Delete it",
    "response_cancel": "Cancel it while it runs in the background",
    "response_items": "What it was made from",
}
_REF = "#/components/schemas/{model}"


def document_generation(app: FastAPI) -> None:
    """Add the routes to the document which `app.openapi()` makes."""
    base = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = base()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            for route, (summary, model) in _BODIES.items():
                schema = model.model_json_schema(ref_template=_REF)
                schemas |= schema.pop("$defs", {})
                for path in PATHS[route]:
                    document["paths"][path] = {"post": _operation(summary, schema)}
            for route, summary in _KEPT.items():
                method, path = KEPT_PATHS[route]
                document["paths"].setdefault(path, {})[method.lower()] = _by_id(summary)
            for operations in document["paths"].values():
                for operation in operations.values():
                    _say_errors(operation)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _say_errors(operation: dict[str, Any]) -> None:
    """In the one shape there is, and not in FastAPI's."""
    operation["responses"] = {**operation["responses"], "default": _RESPONSES["default"]}
    operation["responses"].pop("422", None)


def _by_id(summary: str) -> dict[str, Any]:
    name = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    return {"summary": summary, "parameters": [name], "responses": _RESPONSES}


_TEXT_OR_NULL: Mapping[str, Any] = {"type": ["string", "null"]}
_ERROR: Mapping[str, Any] = {
    "type": "object",
    "required": ["error"],
    "additionalProperties": False,
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "additionalProperties": False,
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": _TEXT_OR_NULL,
                "code": _TEXT_OR_NULL,
            },
        }
    },
}
_RESPONSES: Mapping[str, Any] = {
    "200": {
        "description": "A JSON object, or server-sent events where `stream` is true",
        "content": {"application/json": {}, "text/event-stream": {}},
    },
    "default": {"description": "An error", "content": {"application/json": {"schema": _ERROR}}},
}


def _operation(summary: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": _RESPONSES,
    }
