"""Keys: who talks, and what was sent so far."""

import hashlib
import json
from typing import Any

from canon.memory.turns import as_item

_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


def digest(purpose: str, *parts: bytes) -> bytes:
    """32 bytes that only the same purpose and the same parts give."""
    hashed = hashlib.blake2b(purpose.encode(), digest_size=32)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big"))
        hashed.update(part)
    return hashed.digest()


def value_bytes(value: Any) -> bytes:
    """JSON in one form; key order counts, and `1`, `1.0` and `true` differ."""
    return _encode(value).encode()


class ItemDigests:
    """Digests of items, each computed once: most of a request is sent as it came."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, bytes]] = {}  # by id; the item is kept so that its id stays its own

    def __call__(self, item: Any) -> bytes:
        known = self._known.get(id(item))
        if known is None:
            known = self._known[id(item)] = (item, digest("item", value_bytes(as_item(item))))
        return known[1]


class Chain:
    """A hash over what was sent, item by item, under a root that names the conversation's client."""

    def __init__(self, root: bytes, digests: ItemDigests) -> None:
        self.head = root
        self._digests = digests

    def then(self, item: Any) -> bytes:
        """The head there would be after one more item."""
        return digest("then", self.head, self._digests(item))

    def add(self, item: Any) -> None:
        self.head = self.then(item)
