"""The canonical form: members sorted by name, no blanks, one spelling for each character, numbers as they came."""

import json
from typing import Any, NoReturn

from canon.errors import CanonError, JsonRefusedError
from canon.lossless.reader import MAX_DEPTH, Array, Atom, Node, Object, String, read
from canon.lossless.strings import can_be_decoded, canonical_string, meaning


def canonical(text: str) -> str:
    """The canonical form of a text that is JSON as a whole. Equal for texts that mean the same, numbers by spelling.

    Raises:
        JsonRefusedError: see `read`; or something follows the value.
    """
    return _by_the_standard_library(text) or write(_whole(text))


def _whole(text: str) -> Node:
    node, end = read(text)
    if rest := text[end:].strip(" \t\n\r"):
        raise JsonRefusedError("not JSON", text.index(rest[0], end))
    return node


def write(node: Node) -> str:
    """The canonical form of what was read."""
    pieces: list[str] = []
    stack: list[Node | str] = [node]
    while stack:
        match stack.pop():
            case str() as piece:
                pieces.append(piece)
            case Atom(lexeme):
                pieces.append(lexeme)
            case String(lexeme):
                pieces.append(f'"{canonical_string(lexeme)}"')
            case Array(items):
                stack += _reversed("[", [(item,) for item in items], "]")
            case Object(members):
                ordered = sorted(members, key=lambda member: meaning(member[0]))
                parts = [(f'"{canonical_string(name)}":', value) for name, value in ordered]
                stack += _reversed("{", parts, "}")
    return "".join(pieces)


def _reversed(start: str, parts: list[Any], end: str) -> list[Node | str]:
    pieces: list[Node | str] = [start]
    for index, part in enumerate(parts):
        pieces += (",", *part) if index else part
    pieces.append(end)
    pieces.reverse()
    return pieces


# ---- the fast way: the standard library's reader and writer, where they lose nothing --------------------------------


class _LossyError(CanonError):
    """The standard library would lose something of this text."""


def _by_the_standard_library(text: str) -> str | None:
    if not can_be_decoded(text):
        return None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_members,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_refuse,
        )
        return _WRITER.encode(value) if _is_shallow(text, value) else None
    except (_LossyError, ValueError, RecursionError):
        return None


_WRITER = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False)


def _is_shallow(text: str, value: Any) -> bool:
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return True
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not level:
            return True
    return False


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _LossyError
    return members


def _integer(lexeme: str) -> int:
    if len(lexeme) > 400 or lexeme == "-0":
        raise _LossyError
    return int(lexeme)


def _number(lexeme: str) -> float:
    number = float(lexeme)
    if repr(number) != lexeme:
        raise _LossyError
    return number


def _refuse(name: str) -> NoReturn:
    raise _LossyError
