"""Lines of request logs in the shapes that people have, each to the request bodies in it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_REQUESTS = (
    "request",
    "body",
    "request_body",
    "requestBody",
    "kwargs",
    "params",
    "inputs",
    "input",
    "payload",
    "data",
)
_RESPONSES = ("response", "response_body", "responseBody", "outputs", "output", "completion")
_BODY_KEYS = ("messages", "prompt")
_SESSIONS = ("session_id", "sessionId", "conversation_id", "thread_id", "trace_id")
_DEPTH = 4


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request of a log."""

    body: Mapping[str, Any]
    response: Any = None  # the answer's body where the log has it
    scope: str = ""  # the tenant, where the log says one


def requests_in(record: Any) -> Iterator[LoggedRequest]:
    """The requests in one parsed line of a log; none if it has none.

    Taken are: a body of Chat Completions, Completions, Responses or Anthropic messages; a record that holds one under
    `request`, `body`, `input` or the like, also as JSON text or one level deeper; a record whose `input` is the whole
    prompt as text; a list of any of these.
    """
    yield from _requests(record, 0)


def _requests(record: Any, depth: int) -> Iterator[LoggedRequest]:
    if isinstance(record, list):
        if depth < _DEPTH:
            for item in record:
                yield from _requests(item, depth + 1)
        return
    if not isinstance(record, dict):
        return
    if _is_body(record):
        yield LoggedRequest(record)
        return
    body = _body_in(record, depth)
    if body is not None:
        yield LoggedRequest(body, _response_in(record), _scope_of(record))


def _is_body(record: Mapping[str, Any]) -> bool:
    if isinstance(record.get("messages"), list) or "prompt" in record:
        return True
    return (
        "input" in record and "model" in record and not any(name in record for name in ("output", *_SESSIONS))
    )


def _body_in(record: Mapping[str, Any], depth: int) -> Mapping[str, Any] | None:
    for name in _REQUESTS:
        value = _parsed(record.get(name))
        if isinstance(value, dict):
            if _is_body(value):
                return value
            inner = _body_in(value, depth + 1) if depth < _DEPTH else None
            if inner is not None:
                return inner
        if name in ("input", "inputs") and isinstance(value, str):
            return {"prompt": value}
        if name in ("input", "inputs") and _are_messages(value):
            return {"messages": value}
    return None


def _are_messages(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and "role" in item for item in value)
    )


def _parsed(value: Any) -> Any:
    """JSON text as what it says."""
    if not isinstance(value, str) or value.lstrip()[:1] != "{":
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _response_in(record: Mapping[str, Any]) -> Any:
    for name in _RESPONSES:
        value = _parsed(record.get(name))
        if isinstance(value, dict):
            inner = value.get("body")
            return inner if isinstance(inner, dict) else value
    return None


def _scope_of(record: Mapping[str, Any]) -> str:
    tenant = record.get("tenant")
    return tenant if isinstance(tenant, str) else ""
