"""Tool calls, and which result answers which."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from canon.requests.draft import Draft
from canon.requests.paths import Path
from canon.shown import json_of

_READING = re.compile(r"read|file|open|view|cat\b|edit|bash|shell|exec|terminal|command|fetch", re.IGNORECASE)
_FILE_NAME = re.compile(r"[\w)-]\.[A-Za-z]\w{0,9}\"")
_SEARCHED = 10_000  # characters of a call's arguments


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: str  # their JSON, as spelled where they are text


def may_read_file(call: Call | None) -> bool:
    """Whether a call may have read a file, or run something that printed one. A result without its call: no."""
    if call is None:
        return False
    return _READING.search(call.name) is not None or _FILE_NAME.search(call.arguments[:_SEARCHED]) is not None


def calls_of(body: dict[str, Any]) -> dict[str, Call]:
    """The tool calls of a request of any shape, by id."""
    turns = _list(body.get("messages", body.get("input")))
    return {str(ident): call for turn in turns for ident, call in _calls(turn)}


def _calls(turn: Any) -> Iterator[tuple[Any, Call]]:
    if not isinstance(turn, dict):
        return
    if isinstance(turn.get("call_id"), str) and "arguments" in turn:
        yield turn["call_id"], _call(turn.get("name"), turn["arguments"])
    for call in _list(turn.get("tool_calls")):
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield call.get("id"), _call(function.get("name"), function.get("arguments"))
    for part in _list(turn.get("content")):
        if isinstance(part, dict) and part.get("type") == "tool_use":
            yield part.get("id"), _call(part.get("name"), part.get("input"))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _call(name: Any, arguments: Any) -> Call:
    return Call(
        name if isinstance(name, str) else "", arguments if isinstance(arguments, str) else json_of(arguments)
    )


def call_id(draft: Draft, path: Path) -> str:
    """The id of the call that the tool result with the text at `path` answers; empty: it says none."""
    for depth in (4, 2):  # a block of an Anthropic message; a message or an item
        holder = draft.get(path[:depth]) if len(path) > depth else None
        for key in ("tool_use_id", "tool_call_id", "call_id"):
            if isinstance(holder, dict) and isinstance(holder.get(key), str):
                ident: str = holder[key]
                return ident
    return ""
