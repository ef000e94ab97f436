"""Errors of engines, whatever their shape, in the gateway's one shape. Facts about shapes:

OpenAI and llama.cpp  {"error": {"message", "type", "param", "code"}}; llama.cpp's code is the status
vLLM                  the same, `code` the status, `type` a name such as BadRequestError
SGLang, LMDeploy      flat: {"object": "error", "message", "type", "param", "code"}
Anthropic             {"type": "error", "error": {"type", "message"}}
FastAPI               {"detail": "..."}, or a list of {"loc", "msg", "type"}
Ollama                {"error": "..."}
"""

import re
from collections.abc import Mapping
from typing import Any

import orjson

from gateway.errors import ApiError

_LONGEST = 2000  # characters of a message
_TOO_LONG = re.compile(
    r"exceed_context_size|context_length_exceeded|context (?:length|size|window)|maximum context"
    r"|longer than the model|prompt is too long|maximum (?:input|model) length|max_model_len",
    re.IGNORECASE,
)
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    408: "timeout_error",
    429: "rate_limit_error",
    503: "service_unavailable",
}
_CODES = {429: "engine_overloaded", 503: "engine_not_ready"}
_NOTHING_THERE = frozenset({"", "not found", "method not allowed", "file not found"})
_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")


def from_answer(status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """The error in an answer of status 400 and above."""
    kept = {name: value for name, value in headers.items() if name == "retry-after"}
    return _error(status, _loaded(body), kept)


def from_event(payload: Mapping[str, Any]) -> ApiError:
    """The error in an event of a stream."""
    told = _told(payload)
    code = told.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return _error(status, payload, {})


def lacks_route(status: int, body: bytes) -> bool:
    """Whether an answer says no more than that there is nothing at its path."""
    if status not in (404, 405):
        return False
    message = _told(_loaded(body)).get("message")
    return not isinstance(message, str) or message.lower() in _NOTHING_THERE


def kind_of(error: ApiError) -> str:
    """How an error is named in ledger and log: never its text."""
    return error.code or error.type


def _error(status: int, payload: Any, headers: Mapping[str, str]) -> ApiError:
    told = _told(payload)
    message = _message(told, status)
    if status in (400, 413, 422, 500) and _TOO_LONG.search(
        f"{told.get('type')} {told.get('code')} {message}"
    ):
        param = told.get("param")
        return ApiError(
            400,
            message,
            param=param if isinstance(param, str) else None,
            code="context_length_exceeded",
            headers=headers,
        )
    param, code = told.get("param"), told.get("code")
    return ApiError(
        status,
        message,
        type_=_type(told.get("type"), status),
        param=param if isinstance(param, str) else None,
        code=code if isinstance(code, str) and not code.isdigit() else _CODES.get(status),
        headers=headers,
    )


def _loaded(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _told(payload: Any) -> Mapping[str, Any]:
    """The object that holds the message."""
    if not isinstance(payload, Mapping):
        return {}
    error = payload.get("error")
    if isinstance(error, Mapping):
        return error
    if isinstance(error, str):
        return {"message": error}
    if "detail" in payload:
        return {"message": _detail(payload["detail"])}
    return payload


def _detail(detail: Any) -> Any:
    """FastAPI's findings: where, and what."""
    if not isinstance(detail, list):
        return detail
    found = [each for each in detail if isinstance(each, Mapping)]
    return "; ".join(f"{'.'.join(map(str, _list(each.get('loc'))))}: {each.get('msg')}" for each in found)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _message(told: Mapping[str, Any], status: int) -> str:
    message = told.get("message")
    if isinstance(message, str) and message:
        return message[:_LONGEST]
    return f"The engine answered with status {status} and gave no reason."


def _type(given: Any, status: int) -> str:
    """OpenAI's word for it: engines have names of their own, such as BadRequestError."""
    if isinstance(given, str) and _NAME.fullmatch(given):
        return given
    return _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
