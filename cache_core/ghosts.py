"""Which blocks a bigger tier would still have: those that made room not long ago."""

from collections.abc import Sequence

import numpy as np

from cache_core.block_header import KEY_BYTES, KEY_IDENTITY_BYTES
from cache_core.tiers.base import Mask

_HASH = slice(KEY_IDENTITY_BYTES, KEY_IDENTITY_BYTES + 8)


_WAYS = 8  # newest ones kept of those whose hashes fall on one slot


class Ghosts:
    """About as many as fit into the tier, so a hit says what a tier of twice the size would have had.

    A table of hashes, 8 bytes a block; in each slot a newer one pushes out the oldest. Whoever writes to it holds a
    lock; a reader needs none.
    """

    def __init__(self, blocks: int) -> None:
        self._slots = np.zeros((max(-(-blocks // _WAYS), 1), _WAYS), dtype=np.uint64)

    def add(self, keys: Sequence[bytes]) -> None:
        """These blocks made room for others."""
        for key in _hashes(keys):
            slot = self._slots[key % len(self._slots)]
            slot[1:] = slot[:-1]
            slot[0] = key

    def has(self, keys: Sequence[bytes]) -> Mask:
        """Which of these made room lately."""
        hashes = _hashes(keys)
        found: Mask = (self._slots[hashes % np.uint64(len(self._slots))] == hashes[:, None]).any(axis=1)
        return found

    def clear(self) -> None:
        """Remember none."""
        self._slots.fill(0)


def _hashes(keys: Sequence[bytes]) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint64]]":
    """Part of the chain hash in each key: it is as good as random."""
    table = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), KEY_BYTES)
    return np.ascontiguousarray(table[:, _HASH]).view(np.uint64)[:, 0]
