"""Whether a body that was parsed can be written again without loss."""

import re
from typing import Any

import orjson

# Possessive, so that neither time nor memory grows by more than the text.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_KEY = re.compile(rb'"\s*+:')
_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*+")


def round_trip_loss(raw: bytes, body: dict[str, Any]) -> str | None:
    """What `orjson.dumps(body)` would change in the meaning of `raw`, of which it was parsed; None: nothing.

    Numbers must come out as they are spelled: orjson turns 1E2 into 100.0, -0 into 0, and 30 digits into a float.
    Keys that stand twice in an object have been lost by now. Spacing and ways to escape a character do not count.
    """
    bare = _STRING.sub(b'"', raw)  # every string is one quotation mark
    for lexeme in set(_NUMBER.findall(bare)):
        if not _survives(lexeme):
            return f"the number {lexeme[:40].decode()} would be written in another way"
    if len(_KEY.findall(bare)) != _members(body):
        return "an object has a key twice"
    return None


def _survives(lexeme: bytes) -> bool:
    try:
        return orjson.dumps(orjson.loads(lexeme)) == lexeme
    except orjson.JSONDecodeError:  # 1e400
        return False


def _members(body: dict[str, Any]) -> int:
    """Members of all objects, those inside others included."""
    members = 0
    level: list[Any] = [body]
    while level:
        members += sum(len(node) for node in level if type(node) is dict)
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) is dict or type(child) is list
        ]
    return members
