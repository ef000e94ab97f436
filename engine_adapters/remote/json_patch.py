"""Sets single keys of a JSON object without touching another byte: numbers keep their spelling, keys their order."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],]', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class _Member:
    """Where one member of the top object stands."""

    key: str
    start: int  # of its key
    value: int  # start of its value
    end: int  # of its value, blanks behind it included


def patched(body: bytes, values: Mapping[str, bytes], keys: Collection[str] | None = None) -> bytes:
    """`body` with the top-level keys of `values` set to these JSON texts; each is set once, in its first place.

    `keys`: those that the body has, where they are known: a body that has none of them is not read through.

    Raises:
        ValueError: `body` is no JSON object.
    """
    if keys and not values.keys() & set(keys):
        return _inserted(body, values, empty=False)
    members = list(_members(body))
    parts: list[bytes] = []
    at = 0
    done: set[str] = set()
    for member in members:
        if member.key in values:
            parts += [body[at : member.value], values[member.key]]
            at = member.end
            done.add(member.key)
    new = {key: value for key, value in values.items() if key not in done}
    text = b"".join([*parts, body[at:]])
    return _inserted(text, new, empty=not members) if new else text


def without(body: bytes, names: Collection[str]) -> bytes:
    """`body` without the top-level members of these names, each time they stand there; the others as they are spelled.

    Raises:
        ValueError: `body` is no JSON object.
    """
    members = list(_members(body))
    kept = [member for member in members if member.key not in names]
    if len(kept) == len(members):
        return body
    start = members[0].start
    parts = b",".join(body[member.start : member.end] for member in kept)
    return body[:start] + parts + body[members[-1].end :]


def _inserted(text: bytes, values: Mapping[str, bytes], *, empty: bool) -> bytes:
    start = text.index(b"{") + 1
    added = b",".join(json.dumps(key).encode() + b":" + value for key, value in values.items())
    return text[:start] + added + (b"" if empty else b",") + text[start:]


def _members(body: bytes) -> list[_Member]:
    """The members of the top object, in order; nothing below it is looked into."""
    if body.lstrip()[:1] != b"{":
        raise ValueError("the body is no JSON object")
    members: list[_Member] = []
    depth, key = 0, None
    for token in _TOKEN.finditer(body):
        sign = token.group()[:1]
        if sign == b'"':
            colon = _COLON.match(body, token.end()) if depth == 1 and key is None else None
            if colon is not None:
                key = (json.loads(token.group()), token.start(), colon.end())
        elif sign in b"{[":
            depth += 1
        else:
            depth -= sign != b","
            if key is not None and (depth == 0 or (depth == 1 and sign == b",")):
                members.append(_Member(*key, token.start()))
                key = None
    return members
