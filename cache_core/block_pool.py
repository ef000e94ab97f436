"""The metadata of one tier's fixed blocks: which are free, which are held, and by how many holders."""

import numpy as np
from numpy.typing import NDArray

from cache_core.errors import IntegrityError, OutOfBlocksError
from cache_core.extents import FreeExtents
from cache_core.tokens import INT32

FREE, FILLING, READY = 0, 1, 2  # states of a block; it only ever goes free -> filling -> ready -> free

Blocks = NDArray[np.int32]

_NOTHING: Blocks = np.empty(0, INT32)
_ONE = np.int32(1).tobytes()


class BlockPool:
    """`num_blocks` blocks of `block_size` tokens each. Holds no bytes and decides nobody's eviction.

    Not locked: whoever shares a pool between threads holds one lock around every call.
    Every `blocks` argument is an int32 array of *distinct* block numbers.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"a pool needs blocks and tokens in them, got {num_blocks} x {block_size}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.state = np.full(num_blocks, FREE, dtype=np.uint8)
        self.refs = np.zeros(num_blocks, dtype=np.int32)
        self._free = FreeExtents(0, num_blocks)
        self._free_count = num_blocks

    @property
    def free_count(self) -> int:
        """Blocks that nobody holds."""
        return self._free_count

    def fragmentation(self) -> float:
        """1 - longest free run / free blocks: 0 when all free blocks are one run (or none is free)."""
        return 1.0 - self._free.largest() / self._free_count if self._free_count else 0.0

    def free_runs(self) -> list[tuple[int, int]]:
        """The free blocks as (first block, blocks), in block order."""
        return self._free.runs()

    def allocate(self, n: int, after: int | None = None) -> Blocks:
        """Take `n` free blocks, each with one holder and in state filling, in as few runs as possible.

        Goes on right behind block `after` where that is free, then in the shortest single run that holds the
        rest, then in the longest runs there are.

        Raises:
            OutOfBlocksError: fewer than `n` are free; nothing was taken.
        """
        if n > self._free_count:
            raise OutOfBlocksError(n, self._free_count)
        runs: list[Blocks] = []
        left = n
        if after is not None and n and (taken := self._free.take_at(after + 1, n)):
            left -= taken
            runs.append(self._taken(after + 1, taken))
        while left:
            start, taken = self._free.take_best(left)
            left -= taken
            runs.append(self._taken(start, taken))
        return runs[0] if len(runs) == 1 else np.concatenate([*runs, _NOTHING])

    def allocate_at(self, start: int, limit: int) -> Blocks:
        """As `allocate`, but up to `limit` blocks of the free run that begins at `start`, and none of another."""
        return self._taken(start, self._free.take_at(start, limit))

    def free_around(self, first: int, end: int) -> tuple[int, int]:
        """How many free blocks lie right before block `first`, and how many from block `end` on."""
        return self._free.length_before(first), self._free.length_at(end)

    def shortest_free_runs(self, least: int, limit: int) -> list[tuple[int, int]]:
        """Up to `limit` free runs of at least `least` blocks, the shortest first, as (first block, blocks)."""
        return self._free.shortest(least, limit)

    def mark_ready(self, blocks: Blocks) -> None:
        """The bytes of these filling blocks are whole now."""
        place = _place(blocks)
        if self.state[place].tobytes().count(FILLING) != len(blocks):
            raise IntegrityError(f"only a filling block becomes ready: {self._odd(blocks, FILLING)}")
        self.state[place] = READY

    def retain(self, blocks: Blocks) -> None:
        """One more holder for each of these blocks, which must have one already."""
        if (self.refs[blocks] < 1).any():
            raise IntegrityError(
                f"a free block cannot be retained: {blocks[self.refs[blocks] < 1][:8].tolist()}"
            )
        self.refs[blocks] += 1

    def release(self, blocks: Blocks) -> int:
        """One holder less for each of these blocks; says how many had no other and are free now."""
        if len(blocks) == 0:
            return 0
        run = _place(blocks)
        if isinstance(run, slice) and self.refs[run].tobytes() == _ONE * len(blocks):
            self.refs[run] = 0
            self.state[run] = FREE
            self._free.give(run.start, len(blocks))
            self._free_count += len(blocks)
            return len(blocks)
        ordered = np.sort(blocks)
        if (ordered[1:] == ordered[:-1]).any():
            raise IntegrityError("a release names each block once")
        left = self.refs[ordered] - 1
        if left.min() < 0:
            raise IntegrityError(
                f"double free, these blocks have no holder: {ordered[left < 0][:8].tolist()}"
            )
        self.refs[ordered] = left
        freed = ordered[left == 0]
        self.state[freed] = FREE
        self._give_back(freed)
        return len(freed)

    def _taken(self, start: int, length: int) -> Blocks:
        end = start + length
        self._free_count -= length
        self.state[start:end] = FILLING
        self.refs[start:end] = 1
        return np.arange(start, end, dtype=INT32)

    def _give_back(self, freed: Blocks) -> None:
        if len(freed) == 0:
            return
        breaks = np.flatnonzero(np.diff(freed) != 1) + 1
        firsts = freed[np.concatenate(([0], breaks))].tolist()
        lengths = np.diff(np.concatenate(([0], breaks, [len(freed)]))).tolist()
        for first, length in zip(firsts, lengths, strict=True):
            self._free.give(first, length)
        self._free_count += len(freed)

    def _odd(self, blocks: Blocks, expected: int) -> list[int]:
        odd: list[int] = blocks[self.state[blocks] != expected][:8].tolist()
        return odd


def _place(blocks: Blocks) -> slice | Blocks:
    """Where these blocks are in an array: as a slice, which numpy takes much faster, if each follows the one before."""
    start, length = (int(blocks[0]), len(blocks)) if len(blocks) else (0, 0)
    follows = length == 1 or blocks.tobytes() == np.arange(start, start + length, dtype=INT32).tobytes()
    return slice(start, start + length) if follows else blocks
