"""Hashes that came by lately, in bounded room: of blocks that made room for others, and of blocks that were used."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cache_core.block_header import KEY_BYTES, KEY_IDENTITY_BYTES
from cache_core.tiers.base import Mask

Hashes: TypeAlias = NDArray[np.uint64]

_PART = 8  # bytes of a chain hash that are kept: it is as good as random
_HASH = slice(KEY_IDENTITY_BYTES, KEY_IDENTITY_BYTES + _PART)
_WAYS = 8  # newest ones kept of those whose hashes fall on one slot


class RecentHashes:
    """About `count` of the newest ones. A table of 8 bytes each; in each slot a newer one pushes out the oldest.

    Whoever writes to it holds a lock; a reader needs none.
    """

    def __init__(self, count: int) -> None:
        self._slots = np.zeros((max(-(-count // _WAYS), 1), _WAYS), dtype=np.uint64)

    def add(self, hashes: Hashes) -> None:
        """These came by now, one after the other."""
        places = hashes % np.uint64(len(self._slots))
        while len(hashes):  # of each slot one at a time
            _, first = np.unique(places, return_index=True)
            slots = places[first]
            self._slots[slots, 1:] = self._slots[slots, :-1]
            self._slots[slots, 0] = hashes[first]
            hashes, places = np.delete(hashes, first), np.delete(places, first)

    def has(self, hashes: Hashes) -> Mask:
        """Which of these came by lately."""
        found: Mask = (self._slots[hashes % np.uint64(len(self._slots))] == hashes[:, None]).any(axis=1)
        return found

    def clear(self) -> None:
        """Remember none."""
        self._slots.fill(0)


class Ghosts:
    """Which blocks a bigger tier would still have: those that made room not long ago.

    About as many as fit into the tier, so a hit says what a tier of twice the size would have had. Locked as
    `RecentHashes`.
    """

    def __init__(self, blocks: int) -> None:
        self._recent = RecentHashes(blocks)

    def add(self, keys: Sequence[bytes]) -> None:
        """These blocks made room for others."""
        self._recent.add(_of_keys(keys))

    def has(self, keys: Sequence[bytes]) -> Mask:
        """Which of these made room lately."""
        return self._recent.has(_of_keys(keys))

    def clear(self) -> None:
        """Remember none."""
        self._recent.clear()


def of_chain(hashes: Sequence[bytes]) -> Hashes:
    """What is remembered of these chain hashes."""
    size = len(hashes[0]) if hashes else _PART
    return _packed(np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(len(hashes), size)[:, :_PART])


def _of_keys(keys: Sequence[bytes]) -> Hashes:
    """The same of blocks' keys."""
    table = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), KEY_BYTES)
    return _packed(table[:, _HASH])


def _packed(parts: NDArray[np.uint8]) -> Hashes:
    return np.ascontiguousarray(parts).view(np.uint64)[:, 0]
