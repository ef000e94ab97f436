"""The generation routes in /openapi.json, which FastAPI cannot see because they are plain ASGI."""

from typing import Any

from fastapi import FastAPI

from gateway.relay.body import RelayedBody
from gateway.wire.chat_body import ChatBody
from gateway.wire.completions_body import CompletionsBody
from gateway.wire.validation import WireModel

_ROUTES: dict[str, tuple[str, type[WireModel]]] = {
    "/v1/chat/completions": ("Chat completion", ChatBody),
    "/v1/completions": ("Text completion", CompletionsBody),
}
_RELAYED: dict[str, tuple[str, type[WireModel]]] = {
    "/v1/responses": ("Response, by engines behind HTTP", RelayedBody),
    "/v1/embeddings": ("Embeddings, by engines behind HTTP", RelayedBody),
    "/v1/messages": ("Message, by engines behind HTTP", RelayedBody),
}
_REF = "#/components/schemas/{model}"


def document_generation(app: FastAPI, *, relayed: bool) -> None:
    """Add the routes to the document which `app.openapi()` makes; `relayed`: those that are only relayed, too."""
    base = app.openapi
    routes = {**_ROUTES, **_RELAYED} if relayed else _ROUTES

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = base()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            for path, (summary, model) in routes.items():
                schema = model.model_json_schema(ref_template=_REF)
                schemas |= schema.pop("$defs", {})
                document["paths"][path] = {"post": _operation(summary, schema)}
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _operation(summary: str, schema: dict[str, Any]) -> dict[str, Any]:
    answer = {
        "description": "A JSON object, or server-sent events where `stream` is true",
        "content": {"application/json": {}, "text/event-stream": {}},
    }
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {"200": answer, "default": {"description": 'An error: `{"error": {...}}`'}},
    }
