"""What compaction is on every tier: in which passes it goes over the blocks, and where in a pool they should lie."""

from cache_core.block_pool import BlockPool

LOOKED_AT = 128  # nodes or rows in one step: what bounds the time the lock is held
WORTH = 64  # blocks that may be moved to put two parts of a prefix together
TOLERATED = 0.1  # fragmentation that is not worth a copy
_HOLES = 16  # that are compared for one move


class Passes:
    """Which pass it is, and whether there is another one. Not locked.

    In a pass from the highest blocks down, what lies in parts is put together, and parts go into holes further down
    that they fit. When that ends, a pass from the lowest blocks up lets them slide down over the holes below them. A
    finished move leaves fewer parts, or as many and lower ones, so it all comes to an end.
    """

    def __init__(self) -> None:
        self.asleep = False  # nothing is left to gain
        self.sliding = False  # this pass
        self._stirred = True  # since it began, something was moved, or let go of

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

    def over(self) -> bool:
        """One pass is over, and what comes next depends on what it changed; whether another one does."""
        self.asleep = self.sliding and not self._stirred
        self.sliding = not self.sliding and not self._stirred
        self._stirred = False
        return not self.asleep


def whole_at(pool: BlockPool, count: int, behind: int | None) -> int | None:
    """Where `count` blocks that lay in parts should go as one: to block `behind` if there is room; None: nowhere."""
    if behind is not None and pool.free_around(behind, behind)[1] >= count:
        return behind
    runs = pool.shortest_free_runs(count, 1)
    return runs[0][0] if runs else None


def lower_at(pool: BlockPool, first: int, count: int, sliding: bool) -> int | None:
    """Where `count` blocks from `first` on should go so that what is free lies together; None: they stay."""
    before, behind = pool.free_around(first, first + count)
    if sliding:
        return first - before if before else None
    for start, length in pool.shortest_free_runs(count, _HOLES):
        # half of what the sum of the squares of all free runs grows by
        gain = count * (before + behind - length + count) + before * behind
        if start < first - before and gain >= 0:
            return start
    return None
