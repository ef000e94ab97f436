"""The metadata of one tier's fixed blocks: which are free, which are held, and by how many holders."""

import numpy as np
from numpy.typing import NDArray

from cache_core.errors import IntegrityError, OutOfBlocksError
from cache_core.extents import FreeExtents
from cache_core.tokens import INT32

FREE, FILLING, READY = 0, 1, 2  # states of a block; it only ever goes free -> filling -> ready -> free

Blocks = NDArray[np.int32]

_NOTHING: Blocks = np.empty(0, INT32)
_ONE_FILLING, _ONE_READY = np.int32(-1).tobytes(), np.int32(1).tobytes()


class BlockPool:
    """`num_blocks` blocks of `block_size` tokens each. Holds no bytes and decides nobody's eviction.

    Not locked: whoever shares a pool between threads holds one lock around every call.
    Every `blocks` argument is an int32 array of *distinct* block numbers. Those it returns may be read-only views.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"a pool needs blocks and tokens in them, got {num_blocks} x {block_size}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        # State and number of holders in one: 0 free, -n filling, n ready. One array is written at half the cost of two.
        self.holders = np.zeros(num_blocks, dtype=np.int32)
        self._numbers = np.arange(num_blocks, dtype=np.int32)  # every run of blocks is a part of it
        self._numbers.flags.writeable = False
        self._free = FreeExtents(0, num_blocks)
        self._free_count = num_blocks

    @property
    def free_count(self) -> int:
        """Blocks that nobody holds."""
        return self._free_count

    @property
    def state(self) -> NDArray[np.uint8]:
        """FREE, FILLING or READY: uint8 [num_blocks], made anew."""
        return np.where(self.holders > 0, READY, np.where(self.holders < 0, FILLING, FREE)).astype(np.uint8)

    def fragmentation(self) -> float:
        """1 - longest free run / free blocks: 0 when all free blocks are one run (or none is free)."""
        return 1.0 - self._free.largest() / self._free_count if self._free_count else 0.0

    @property
    def longest_free_run(self) -> int:
        """Blocks in it; 0 when none is free."""
        return self._free.largest()

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
        if n == 0:
            return _NOTHING
        start, taken = 0, 0
        if after is not None:
            start = after + 1
            taken = self._free.take_at(start, n)
        if not taken:
            start, taken = self._free.take_best(n)
        first = self._taken(start, taken)
        return first if taken == n else self._in_parts(first, n - taken)

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
        place = self._place(blocks)
        held = self.holders[place]
        if held.tobytes() == _ONE_FILLING * len(blocks):
            self.holders[place] = 1
            return
        if (held >= 0).any():
            raise IntegrityError(f"only a filling block becomes ready: {blocks[held >= 0][:8].tolist()}")
        self.holders[place] = -held

    def retain(self, blocks: Blocks) -> None:
        """One more holder for each of these blocks, which must have one already."""
        held = self.holders[blocks]
        if (held == 0).any():
            raise IntegrityError(f"a free block cannot be retained: {blocks[held == 0][:8].tolist()}")
        self.holders[blocks] = held + np.sign(held)

    def release(self, blocks: Blocks) -> int:
        """One holder less for each of these blocks; says how many had no other and are free now."""
        if len(blocks) == 0:
            return 0
        run = self._place(blocks)
        if isinstance(run, slice) and self._have_one_holder(run):
            return self._give_run(run)
        ordered = np.sort(blocks)
        if (ordered[1:] == ordered[:-1]).any():
            raise IntegrityError("a release names each block once")
        held = self.holders[ordered]
        if not held.all():
            raise IntegrityError(
                f"double free, these blocks have no holder: {ordered[held == 0][:8].tolist()}"
            )
        left = held - np.sign(held)
        self.holders[ordered] = left
        freed = ordered[left == 0]
        self._give_back(freed)
        return len(freed)

    def _in_parts(self, first: Blocks, left: int) -> Blocks:
        runs = [first]
        while left:
            start, taken = self._free.take_best(left)
            left -= taken
            runs.append(self._taken(start, taken))
        return np.concatenate(runs)

    def _taken(self, start: int, length: int) -> Blocks:
        end = start + length
        self._free_count -= length
        self.holders[start:end] = -1
        return self._numbers[start:end]

    def _give_run(self, run: slice) -> int:
        length: int = run.stop - run.start
        self.holders[run] = 0
        self._free.give(run.start, length)
        self._free_count += length
        return length

    def _have_one_holder(self, run: slice) -> bool:
        length = run.stop - run.start
        if length == 1:  # the rest of a prompt that fills no block: the most frequent of all
            return self.holders.item(run.start) in (-1, 1)
        held: bytes = self.holders[run].tobytes()
        return held in (_ONE_READY * length, _ONE_FILLING * length)

    def _place(self, blocks: Blocks) -> slice | Blocks:
        """Where these blocks are in an array: as a slice, which numpy takes much faster, if they are one run."""
        length = len(blocks)
        start = blocks.item(0) if length else 0
        follows = length <= 1 or blocks.tobytes() == self._numbers[start : start + length].tobytes()
        return slice(start, start + length) if follows else blocks

    def _give_back(self, freed: Blocks) -> None:
        if len(freed) == 0:
            return
        breaks = np.flatnonzero(np.diff(freed) != 1) + 1
        firsts = freed[np.concatenate(([0], breaks))].tolist()
        lengths = np.diff(np.concatenate(([0], breaks, [len(freed)]))).tolist()
        for first, length in zip(firsts, lengths, strict=True):
            self._free.give(first, length)
        self._free_count += len(freed)


def single_holds(blocks: Blocks) -> list[Blocks]:
    """`blocks` in as few arrays as possible that name none twice: a pool counts one holder a call."""
    distinct, counts = np.unique(blocks, return_counts=True)
    return [distinct[counts > time] for time in range(int(counts.max()) if len(counts) else 0)]
