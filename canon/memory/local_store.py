"""A memory store in this process."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from canon.memory.store import MemoryStore

_OVERHEAD = 200  # bytes that a record takes beside its key and value: dict entry, tuple, three objects

MIB = 1024 * 1024


class LocalStore(MemoryStore):
    """Bounded by bytes, the least recently used record goes first; a record unused for `ttl_s` is gone.

    `clock` gives seconds and never goes back. Bytes count keys, values and what Python takes for them.
    """

    def __init__(
        self,
        max_bytes: int = 64 * MIB,
        *,
        max_record_bytes: int = MIB,
        ttl_s: float = 24 * 3600,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_record_bytes = max_record_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._lock = threading.Lock()
        self._records: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()  # value, when last used
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: bytes) -> bytes | None:
        with self._lock:
            return self._get(key)

    def put(self, key: bytes, value: bytes) -> None:
        with self._lock:
            self._put(key, value)

    def compare_and_put(self, key: bytes, expected: bytes | None, value: bytes) -> bool:
        with self._lock:
            if self._get(key) != expected:
                return False
            self._put(key, value)
            return True

    def forget(self, prefix: bytes) -> int:
        with self._lock:
            keys = [key for key in self._records if key.startswith(prefix)]
            for key in keys:
                self._drop(key)
            return len(keys)

    def items(self) -> list[tuple[bytes, bytes]]:
        """Every record there is now, the least recently used first."""
        with self._lock:
            return [(key, value) for key, (value, _) in self._records.items()]

    def _get(self, key: bytes) -> bytes | None:
        now = self._clock()
        self._forget_before(now - self._ttl_s)
        found = self._records.get(key)
        if found is None:
            return None
        self._records[key] = (found[0], now)
        self._records.move_to_end(key)
        return found[0]

    def _put(self, key: bytes, value: bytes) -> None:
        now = self._clock()
        self._forget_before(now - self._ttl_s)
        if key in self._records:
            self._drop(key)
        if len(value) > self._max_record_bytes:
            return
        self._records[key] = (value, now)
        self.bytes += _size(key, value)
        while self.bytes > self._max_bytes:
            self._drop(next(iter(self._records)))

    def _forget_before(self, moment: float) -> None:
        # The order of use is the order of time: what has expired stands in front.
        while self._records and next(iter(self._records.values()))[1] < moment:
            self._drop(next(iter(self._records)))

    def _drop(self, key: bytes) -> None:
        value, _ = self._records.pop(key)
        self.bytes -= _size(key, value)


def _size(key: bytes, value: bytes) -> int:
    return len(key) + len(value) + _OVERHEAD
