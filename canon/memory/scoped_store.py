"""A store as one scope sees it."""

from canon.memory.chain import digest
from canon.memory.store import MemoryStore


def prefix_of(scope: str) -> bytes:
    """What the keys of a scope's records begin with, 16 bytes."""
    return digest("scope prefix", scope.encode("utf-8", "surrogatepass"))[:16]


class ScopedStore(MemoryStore):
    """Puts the scope in front of every key, so that scopes cannot meet and one can be forgotten as a whole."""

    def __init__(self, store: MemoryStore, scope: str) -> None:
        self._store = store
        self._prefix = prefix_of(scope)

    def get(self, key: bytes) -> bytes | None:
        return self._store.get(self._prefix + key)

    def put(self, key: bytes, value: bytes) -> None:
        self._store.put(self._prefix + key, value)

    def compare_and_put(self, key: bytes, expected: bytes | None, value: bytes) -> bool:
        return self._store.compare_and_put(self._prefix + key, expected, value)

    def forget(self, prefix: bytes = b"") -> int:
        return self._store.forget(self._prefix + prefix)
