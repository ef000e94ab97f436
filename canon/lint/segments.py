"""A request as its prompt is laid out: pieces in the order in which templates print them, each with its path."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from canon.requests.paths import Path

SegmentKind = Literal["tool", "text", "reasoning", "call", "call_id", "media", "other"]

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_PLAIN = {"role", "content"}
_MEDIA = ("image", "audio", "video", "file", "document")


class Segment(msgspec.Struct, frozen=True):
    """One piece of a prompt. Two pieces are the same when `role`, `kind` and `text` are."""

    path: Path
    role: str  # of its message; "tools" for tools
    kind: SegmentKind
    text: str  # of media: a digest; of structures: compact JSON in the order in which they came
    turn: int = -1  # index of its message or item; -1: before them
    wire: str = ""  # how the same thing was sent, where there are two ways: "string" or "object"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.role, self.kind, self.text


def segments_of(body: Any) -> list[Segment]:
    """The pieces of any request body in prompt order; what has no place in a prompt is left out.

    Tools stand behind the first system message, where most templates print them; token ids are one piece.
    """
    if not isinstance(body, dict):
        return []
    if isinstance(body.get("messages"), list):
        return _conversation(body, "messages")
    if "prompt" in body:
        return list(_prompt(body["prompt"]))
    if "input" in body:
        return _conversation(body, "input")
    return []


def dump(value: Any) -> str:
    """Compact JSON in the given order; of what JSON cannot say, its Python form."""
    try:
        return _compact(value)
    except (TypeError, ValueError, RecursionError):
        return repr(value)[:10_000]


def _prompt(prompt: Any) -> Iterator[Segment]:
    if isinstance(prompt, str):
        yield Segment(("prompt",), "prompt", "text", prompt, 0)
    elif isinstance(prompt, list) and any(isinstance(item, (str, list)) for item in prompt):
        for index, item in enumerate(prompt):
            yield Segment(
                ("prompt", index), "prompt", "text", item if isinstance(item, str) else dump(item), index
            )
    elif isinstance(prompt, list):
        yield Segment(("prompt",), "prompt", "text", dump(prompt), 0)


def _conversation(body: dict[str, Any], key: str) -> list[Segment]:
    pieces: list[Segment] = []
    for name in ("system", "instructions"):
        if body.get(name) is not None:
            pieces += _content((name,), body[name], "system", -1)
    given, head = body[key], len(pieces)
    if isinstance(given, str):
        items: list[Any] = []
        pieces.append(Segment((key,), "user", "text", given, 0))
    else:
        items = given if isinstance(given, list) else [{"role": "user", "content": given}]
    for turn, item in enumerate(items):
        # As most are: the way of all others takes ten times as long.
        if type(item) is dict and item.keys() == _PLAIN:
            role, content = item["role"], item["content"]
            if type(content) is str and type(role) is str:
                pieces.append(Segment((key, turn, "content"), role, "text", content, turn))
                continue
        pieces += _message((key, turn), item, turn)
    if body.get("tools"):
        first = 0 if head else _first_system(items)
        place = sum(piece.turn < first for piece in pieces)
        pieces[place:place] = _tools(body["tools"])
    return pieces


def _first_system(items: list[Any]) -> int:
    """How many messages stand before the tools."""
    for turn, item in enumerate(items):
        if isinstance(item, dict) and item.get("role") in ("system", "developer"):
            return turn + 1
    return 0


def _tools(tools: Any) -> Iterator[Segment]:
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        yield Segment(("tools", index), "tools", "tool", dump(tool))


def _message(path: Path, item: Any, turn: int) -> Iterator[Segment]:
    if not isinstance(item, dict):
        return
    role = str(item.get("role", item.get("type", "")))
    for name in ("tool_call_id", "call_id"):
        if isinstance(item.get(name), str):
            yield Segment((*path, name), role, "call_id", item[name], turn)
    for name in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(item.get(name), str) and item[name]:
            yield Segment((*path, name), role, "reasoning", item[name], turn)
    for name in ("content", "output", "summary"):
        if item.get(name) is not None:
            yield from _content((*path, name), item[name], role, turn)
    yield from _calls(path, item, role, turn)


def _calls(path: Path, item: dict[str, Any], role: str, turn: int) -> Iterator[Segment]:
    calls = item.get("tool_calls")
    for index, call in enumerate(calls if isinstance(calls, list) else ()):
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            here: Path = (*path, "tool_calls", index)
            yield Segment((*here, "id"), role, "call_id", str(call.get("id")), turn)
            yield from _call((*here, "function"), function, role, turn)
    if item.get("type") == "function_call" or isinstance(item.get("function_call"), dict):
        inner = item.get("function_call")
        where: Path = (*path, "function_call") if isinstance(inner, dict) else path
        yield from _call(where, inner if isinstance(inner, dict) else item, role, turn)


def _call(path: Path, function: dict[str, Any], role: str, turn: int) -> Iterator[Segment]:
    given = function.get("arguments")
    text = given if isinstance(given, str) else dump(given)
    yield Segment((*path, "name"), role, "other", str(function.get("name")), turn)
    wire = "string" if isinstance(given, str) else "object"
    yield Segment((*path, "arguments"), role, "call", text, turn, wire)


def _content(path: Path, content: Any, role: str, turn: int) -> Iterator[Segment]:
    if isinstance(content, str):
        yield Segment(path, role, "text", content, turn)
        return
    if not isinstance(content, list):
        yield Segment(path, role, "other", dump(content), turn)
        return
    for index, part in enumerate(content):
        yield from _part((*path, index), part, role, turn)


def _part(path: Path, part: Any, role: str, turn: int) -> Iterator[Segment]:
    if isinstance(part, str):
        yield Segment(path, role, "text", part, turn)
        return
    if not isinstance(part, dict):
        return
    kind = str(part.get("type", ""))
    if isinstance(part.get("text"), str):
        yield Segment((*path, "text"), role, "text", part["text"], turn)
    elif isinstance(part.get("thinking"), str):
        yield Segment((*path, "thinking"), role, "reasoning", part["thinking"], turn)
    elif kind == "tool_use":
        yield Segment((*path, "id"), role, "call_id", str(part.get("id")), turn)
        yield Segment((*path, "name"), role, "other", str(part.get("name")), turn)
        yield Segment((*path, "input"), role, "call", dump(part.get("input")), turn)
    elif kind == "tool_result":
        yield Segment((*path, "tool_use_id"), role, "call_id", str(part.get("tool_use_id")), turn)
        yield from _content((*path, "content"), part.get("content") or "", "tool", turn)
    elif any(word in kind for word in _MEDIA):
        digest = hashlib.sha256(dump(part).encode("utf-8", "surrogatepass")).hexdigest()
        yield Segment(path, role, "media", f"{kind} {digest}", turn)
    else:
        yield Segment(path, role, "other", dump(part), turn)
