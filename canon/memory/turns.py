"""A conversation as a row of turns, whatever the shape of its request."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from canon.requests.paths import Path
from canon.requests.view import Kind

Side = Literal["client", "model", "other"]  # client: user turns and tool results, which may carry a tail note

_MARK = "cache_control"
_CLIENT_ROLES = frozenset({"user", "tool", "function"})


@dataclass(frozen=True, slots=True)
class Turn:
    """One message or input item."""

    path: Path
    side: Side


def items_of(kind: Kind, body: Mapping[str, Any]) -> list[Any]:
    """The messages or input items, in order; empty where the body is no conversation."""
    if kind == "completions":
        return []
    items = body.get(_key(kind))
    if isinstance(items, str) and kind == "responses":
        return [items]
    return items if isinstance(items, list) else []


def turns_of(kind: Kind, body: Mapping[str, Any]) -> list[Turn]:
    """A turn for every one of `items_of`."""
    items = items_of(kind, body)
    if items is not body.get(_key(kind)):
        return [Turn((_key(kind),), "client") for _ in items]
    return [Turn((_key(kind), index), _side(item)) for index, item in enumerate(items)]


def opening(kind: Kind, body: Mapping[str, Any]) -> Any:
    """What stands before the turns in a place of its own."""
    key: str | None = {"messages": "system", "responses": "instructions"}.get(kind)
    return body.get(key) if key else None


def as_item(value: Any) -> Any:
    """An item in the one form that is hashed: clients write the same user turn as text or as a message."""
    if isinstance(value, str):
        return {"role": "user", "content": value}
    if isinstance(value, list):
        return _unmarked(value)
    if not isinstance(value, dict):
        return value
    item = value
    if item.get("type") == "message":
        item = {key: part for key, part in item.items() if key != "type"}
    content = item.get("content")
    return {**item, "content": _unmarked(content)} if isinstance(content, list) else item


def _unmarked(parts: list[Any]) -> list[Any]:
    """Parts without marks of where to cache, which clients put at other places in each request."""
    if not any(isinstance(part, dict) and _MARK in part for part in parts):
        return parts
    return [
        {key: value for key, value in part.items() if key != _MARK} if isinstance(part, dict) else part
        for part in parts
    ]


def _key(kind: Kind) -> str:
    return "input" if kind == "responses" else "messages"


def _side(item: Any) -> Side:
    if not isinstance(item, dict):
        return "other"
    role, kind = item.get("role"), item.get("type")
    if isinstance(role, str):
        return "model" if role == "assistant" else "client" if role in _CLIENT_ROLES else "other"
    if isinstance(kind, str) and kind.endswith("_call_output"):
        return "client"
    return "model" if isinstance(kind, str) and (kind == "reasoning" or kind.endswith("_call")) else "other"
