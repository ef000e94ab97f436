"""What compaction is on every tier: in which passes it goes over the blocks, and where in a pool they should lie."""

from enum import IntEnum

from cache_core.block_pool import BlockPool

LOOKED_AT = 128  # nodes or rows in one step: what bounds the time the lock is held
TOLERATED = 0.1  # fragmentation that is not worth a copy
_HOLES = 16  # that are compared for one move


class Pass(IntEnum):
    """What is done in one pass over all blocks."""

    GATHER = 0  # from the highest blocks down, what lies in parts is put together
    LOWER = 1  # from the highest blocks down, parts go into holes further down that they fit
    SLIDE = 2  # from the lowest blocks up, they slide down over the holes below them


class Passes:
    """Which pass it is, and whether there is another one. Not locked.

    The next kind of pass comes where one changed nothing; where it did, it all begins anew. A finished move leaves
    fewer parts, or as many and lower ones, so it comes to an end.
    """

    def __init__(self, pool: BlockPool) -> None:
        self.asleep = False  # nothing is left to gain
        self.kind = Pass.GATHER
        self._pool = pool
        self._stirred = True  # since this pass began, something was moved, or let go of

    def wake(self) -> None:
        """Somebody let go of blocks, or others came: there may be more to do than there was."""
        self.asleep = False
        self._stirred = True

    def moved(self) -> None:
        """Where something lay there is room now: this was not the last pass."""
        self._stirred = True

    def sleep(self) -> None:
        """There is nothing to do before it is woken."""
        self.asleep = True

    @property
    def fragmented(self) -> bool:
        """Whether it is worth a copy to have what is free together."""
        return self._pool.fragmentation() > TOLERATED

    def over(self) -> bool:
        """One pass is over, and what comes next depends on what it changed; whether another one does."""
        last = self.kind is Pass.SLIDE or not self.fragmented
        self.asleep = last and not self._stirred
        self.kind = Pass.GATHER if self._stirred or last else Pass(self.kind + 1)
        self._stirred = False
        return not self.asleep


def whole_at(pool: BlockPool, count: int, behind: int | None) -> int | None:
    """Where `count` blocks that lay in parts should go as one: to block `behind` if there is room; None: nowhere."""
    if behind is not None and pool.free_around(behind, behind)[1] >= count:
        return behind
    runs = pool.shortest_free_runs(count, 1)
    return runs[0][0] if runs else None


def lower_at(pool: BlockPool, first: int, count: int, kind: Pass) -> int | None:
    """Where `count` blocks from `first` on should go so that what is free lies together; None: they stay."""
    before, behind = pool.free_around(first, first + count)
    if kind is Pass.SLIDE:
        return first - before if before else None
    for start, length in pool.shortest_free_runs(count, _HOLES):
        # half of what the sum of the squares of all free runs grows by
        gain = count * (before + behind - length + count) + before * behind
        if start < first - before and gain >= 0:
            return start
    return None
