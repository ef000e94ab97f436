"""Token ids of text that was seen, kept within a bound of bytes."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from threading import Lock

import numpy as np
from numpy.typing import NDArray

_ENTRY_BYTES = 256  # key, array header and table slots of one entry, about

_DIGEST = 32  # bytes
_SHORT = 16  # characters

Key = bytes


def text_key(form: bytes, text: str) -> Key:
    """32 bytes that stand for `text` encoded in `form`: at this length nobody finds two texts with one key.

    Of short texts, as templates have between messages, more: all of them.
    """
    if len(text) <= _SHORT and len(form) >= _DIGEST:
        return b"%b %b" % (form, text.encode())
    return blake2b(text.encode(), digest_size=_DIGEST, key=form).digest()


class EncodingMemo:
    """Least recently used entries go first. Thread-safe; arrays in it are read-only."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Key, NDArray[np.int32]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, keys: Sequence[Key]) -> list[NDArray[np.int32] | None]:
        """The ids by key, None where they are not known."""
        with self._lock:
            found = [*map(self._entries.get, keys)]
            for key, ids in zip(keys, found, strict=True):
                if ids is not None:
                    self._entries.move_to_end(key)
        return found

    def clear(self) -> int:
        """Forget all entries; how many there were."""
        with self._lock:
            count, self._bytes = len(self._entries), 0
            self._entries.clear()
        return count

    def put(self, entries: Iterable[tuple[Key, NDArray[np.int32]]]) -> None:
        """Keeps the entries, those that fit at all."""
        with self._lock:
            for key, ids in entries:
                if key not in self._entries and _cost(ids) <= self._max_bytes:
                    ids.setflags(write=False)
                    self._entries[key] = ids
                    self._bytes += _cost(ids)
            while self._bytes > self._max_bytes:
                self._bytes -= _cost(self._entries.popitem(last=False)[1])


def _cost(ids: NDArray[np.int32]) -> int:
    return ids.nbytes + _ENTRY_BYTES
