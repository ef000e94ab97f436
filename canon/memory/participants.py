"""Who talks, and what the user said: what tells conversations apart without looking at what was rewritten."""

from collections.abc import Mapping, Sequence
from typing import Any

from canon.memory.chain import ItemDigests, digest, value_bytes
from canon.memory.turns import Turn

_DISCRIMINATORS = ("user", "prompt_cache_key", "safety_identifier", "conversation")
_METADATA = ("user_id", "session_id", "conversation_id", "thread_id")


def sharing_root(scope: str, body: Mapping[str, Any]) -> bytes:
    """The root of what all conversations of a scope share."""
    return digest("scope", value_bytes([scope, _text(body.get("model"))]))


def conversation_root(scope: str, session: str, body: Mapping[str, Any]) -> bytes:
    """The root of one client's conversations; `session` is what a header or the like says about it."""
    metadata = body.get("metadata")
    named = [_text(body.get(name)) for name in _DISCRIMINATORS]
    named += [_text(metadata.get(name)) if isinstance(metadata, dict) else None for name in _METADATA]
    return digest("client", sharing_root(scope, body), value_bytes([session, named]))


def outline(root: bytes, turns: Sequence[Turn], items: Sequence[Any], digests: ItemDigests) -> list[bytes]:
    """A digest for each client turn: of it and all before it, only by what users wrote.

    Client turns look alike in each request of a conversation, however assistant turns, ids and results are written.
    """
    heads: list[bytes] = []
    head = digest("outline", root)
    for turn, item in zip(turns, items, strict=True):
        if turn.side == "client":
            head = digest("outline", head, digests(item) if _by_user(item) else b"")
            heads.append(head)
    return heads


def _by_user(item: Any) -> bool:
    return isinstance(item, str) or item.get("role") == "user"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
