"""Where a conversation memory keeps its records: in this process, or on a server that several replicas share."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext


class MemoryStore(ABC):
    """Records under keys, both bytes. Keys are at most 64 bytes long; values hold prompt text and are never logged.

    Every method may be called from any thread. A record may be gone at any time: callers get by without it.
    """

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """The record, which counts as used now; None: there is none, or no more."""

    @abstractmethod
    def put(self, key: bytes, value: bytes) -> None:
        """Set the record. One that is larger than the store allows is not kept, and removes what was there."""

    @abstractmethod
    def compare_and_put(self, key: bytes, expected: bytes | None, value: bytes) -> bool:
        """`put` if the record still is `expected` (None: there is none). False: it is not, and nothing was set."""

    def burst(self) -> AbstractContextManager[None]:
        """`with store.burst():` around what one request asks for, on one thread: a store may read ahead within it."""
        return nullcontext()

    @abstractmethod
    def forget(self, prefix: bytes) -> int:
        """Drop every record whose key begins with `prefix`; how many those were. May take long."""
