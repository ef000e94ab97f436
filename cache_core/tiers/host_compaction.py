"""Compaction of the host: in idle time, rows move so that prefixes lie together, and so does what is free."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np

from cache_core.block_pool import BlockPool, Blocks
from cache_core.compaction_passes import LOOKED_AT, Pass, Passes, lower_at, whole_at
from cache_core.tiers.host_arena import Arena
from cache_core.tiers.host_table import HostTable

_WORTH = (
    8  # rows that may be moved to put two parts of a prefix together: longer parts are copied as fast as one
)
_HOLES_COST = 8  # rows that could be looked at while holes are compared for one piece
_UNKNOWN = -1


@dataclass(slots=True)
class _Move:
    """Blocks on their way to a free run, in the order of their prefix; those up to `place` have arrived."""

    rows: Sequence[int]  # where they lay when it was planned
    target: int  # row of the first one
    place: int = 0
    last: bytes | None = None  # key of the one that arrived last


@dataclass(frozen=True, slots=True)
class _Copy:
    """What is copied now."""

    move: _Move
    sources: Blocks
    targets: Blocks


class HostCompactor:
    """Moves rows that have a block and no holder but the tier. `lock` is the tier's; it is not held around a copy.

    It goes over all rows until nothing is left to gain, see `Passes`. What is moved at once is a piece: rows that hold
    blocks which follow each other; or several, if they are parts of one prefix and no other piece is in between.
    Nothing is held while it is copied: whoever reads, evicts, deletes or purges a block meanwhile is not kept from it,
    and the copy is given up.

    Args:
        rows: uint8 [blocks, block bytes].
        moved: is told how many blocks were moved, and the pool's fragmentation since; with no lock held.
    """

    def __init__(
        self, pool: BlockPool, table: HostTable, rows: Arena, lock: Lock, moved: Callable[[int, float], None]
    ) -> None:
        self._pool = pool
        self._table = table
        self._rows = rows
        self._lock = lock
        self._moved = moved
        self._one_step = Lock()  # at a time
        self._passes = Passes(pool)
        self._held_up = False  # somebody else holds a row that would have been moved
        self._move: _Move | None = None
        self._copy: _Copy | None = None
        self._in_place: set[int] = set()  # rows that are copied, and hold what they held then
        # Where a child of the block in a row was seen last, if not in the row behind it. Not kept up: it may be wrong.
        self._child = np.full(pool.num_blocks, _UNKNOWN, dtype=np.int32)
        self._next_row = 0  # to be looked at; from there on this pass does not know the pieces yet
        self._pieces = array("i")  # first row, and one past the last one, of each
        self._left = 0  # pieces that this pass has not come to
        self._looked = 0  # rows, in this step

    # Under the lock.

    def wake(self) -> None:
        """Blocks came: there may be more to do than there was."""
        self._passes.wake()

    def let_go(self, freed: int) -> None:
        """Somebody held rows, of which so many are free now; others may have been in the way."""
        if freed or self._held_up:
            self._held_up = False
            self._passes.wake()

    def removed(self, rows: Blocks) -> None:
        """These hold their blocks no more."""
        self._in_place.difference_update(rows.tolist())

    @property
    def filling(self) -> int:
        """Rows that it copies to now."""
        return 0 if self._copy is None else len(self._copy.targets)

    # Without it.

    def step(self, limit: int) -> bool:
        """Look at some rows, or move up to `limit` blocks; whether there is more to do."""
        with self._one_step:
            with self._lock:
                copy = self._begin(limit)
            if copy is not None:
                self._finish(copy)
            return not self._passes.asleep

    def _finish(self, copy: _Copy) -> None:
        whole, moved, fragmentation = False, 0, 0.0
        try:
            for source, target in zip(copy.sources.tolist(), copy.targets.tolist(), strict=True):
                self._rows[target] = self._rows[source]
            whole = True
        finally:
            with self._lock:
                moved = self._switch(copy, whole)
                fragmentation = self._pool.fragmentation()
        if moved:
            self._moved(moved, fragmentation)

    # Under the lock.

    def _begin(self, limit: int) -> _Copy | None:
        if self._passes.asleep:
            return None
        if self._move is None:
            self._move = self._next_move()
        self._copy = None if self._move is None else self._taken(self._move, limit)
        return self._copy

    def _taken(self, move: _Move, limit: int) -> _Copy | None:
        """The next rows to be copied; None: something has changed, and the move is over."""
        self._move = None
        sources = self._still_movable(move, limit)
        if not sources:
            return None
        targets = self._pool.allocate_at(move.target + move.place, len(sources))
        if not len(targets):
            return None
        sources = sources[: len(targets)]
        self._in_place = set(sources)
        return _Copy(move, np.array(sources, dtype=np.int32), targets)

    def _still_movable(self, move: _Move, limit: int) -> list[int]:
        found: list[int] = []
        last = move.last
        for row in move.rows[move.place : move.place + limit]:
            begins = last is None and self._table.key_in(row) is not None
            if not self._movable(row, row + 1) or not (begins or self._table.goes_on(last, row)):
                break
            found.append(row)
            last = self._table.key_in(row)
        return found

    def _switch(self, copy: _Copy, whole: bool) -> int:
        """Blocks that nobody touched meanwhile are in their new rows now, up to the first other one; how many."""
        moved = self._untouched(copy.sources.tolist()) if whole else 0
        self._copy, self._in_place = None, set()
        sources, targets = copy.sources[:moved], copy.targets[:moved]
        if moved:
            self._pool.mark_ready(targets)
            self._table.move(sources, targets)
            self._pool.release(sources)
            self._passes.moved()
        if moved < len(copy.targets):
            self._pool.release(copy.targets[moved:])
            return moved
        move = copy.move
        place = move.place + moved
        if place < len(move.rows):
            self._move = _Move(move.rows, move.target, place, self._table.key_in(int(targets[-1])))
        return moved

    def _untouched(self, sources: list[int]) -> int:
        """How many of the rows that were copied, the first ones, hold the same block still, for nobody else."""
        for count, row in enumerate(sources):
            if row not in self._in_place or not self._movable(row, row + 1):
                return count
        return len(sources)

    def _next_move(self) -> _Move | None:
        """From some more rows of this pass; None: nothing is to be gained from them."""
        if not self._pool.free_count:
            self._passes.sleep()
            return None
        if self._next_row < self._pool.num_blocks:
            self._look()
            return None
        self._looked = 0
        while self._looked < LOOKED_AT:
            if not self._left:
                if self._passes.over():
                    self._next_row, self._pieces = 0, array("i")
                return None
            self._left -= 1
            place = len(self._pieces) // 2 - 1 - self._left if self._passes.kind is Pass.SLIDE else self._left
            first, end = self._pieces[2 * place : 2 * place + 2]
            if (move := self._worth_moving(first, end)) is not None:
                return move
        return None

    def _look(self) -> None:
        """Find the pieces in some more rows."""
        stop = min(self._next_row + LOOKED_AT, self._pool.num_blocks)
        for row in range(self._next_row, stop):
            if self._table.key_in(row) is None:
                continue
            if self._pieces and self._pieces[-1] == row and self._table.follows(row):
                self._pieces[-1] = row + 1
                continue
            self._pieces.extend((row, row + 1))
            parent = self._table.parent_row(row)
            if parent is not None:
                self._child[parent] = row
        self._next_row = stop
        self._left = len(self._pieces) // 2

    def _worth_moving(self, first: int, end: int) -> _Move | None:
        if self._table.key_in(first) is None or self._follows(first):
            return None  # it is gone, or was put behind another
        kind = self._passes.kind
        if kind is Pass.GATHER:
            rows, cuts, behind = self._line(first)
            target = whole_at(self._pool, len(rows), behind) if cuts and len(rows) <= _WORTH * cuts else None
            return None if target is None else _Move(rows, target)
        if not self._passes.fragmented or self._follows(end) or not self._movable(first, end):
            return None
        self._looked += _HOLES_COST
        target = lower_at(self._pool, first, end - first, kind)
        return None if target is None else _Move(range(first, end), target)

    def _line(self, first: int) -> tuple[list[int], int, int | None]:
        """What could lie together with the piece from `first` on, as far as it can be moved and there is room for it.

        Rows in the order of their prefix, how many parts fewer there would be, and the row behind the block before
        them if there is room.
        """
        room = min(LOOKED_AT, self._pool.longest_free_run)
        rows, cuts = self._from(first, room), 0
        while rows and (part := self._from(self._child_of(rows[-1]), room - len(rows))):
            rows += part
            cuts += 1
        while rows:
            parent = self._table.parent_row(rows[0])
            if parent is None or self._follows(parent + 1):
                break
            if self._pool.free_around(parent + 1, parent + 1)[1] >= len(rows):
                return rows, cuts + 1, parent + 1
            part = self._up_to(parent, room - len(rows))
            if not part:
                break
            rows = part + rows
            cuts += 1
        return rows, cuts, None

    def _from(self, first: int | None, limit: int) -> list[int]:
        """The rows of the piece from `first` on; none if they are more, or cannot be moved."""
        if first is None:
            return []
        end = first + 1
        while end - first <= limit and self._follows(end):
            end += 1
        return list(range(first, end)) if end - first <= limit and self._movable(first, end) else []

    def _up_to(self, last: int, limit: int) -> list[int]:
        """The same of the piece that ends with `last`."""
        first = last
        while last - first < limit and self._follows(first):
            first -= 1
        end = last + 1
        return list(range(first, end)) if end - first <= limit and self._movable(first, end) else []

    def _child_of(self, row: int) -> int | None:
        """Where a child of the last block of a piece was seen, if it is still there."""
        child = int(self._child[row])
        there = child != _UNKNOWN and self._table.goes_on(self._table.key_in(row), child)
        return child if there else None

    def _follows(self, row: int) -> bool:
        """Whether this row belongs to the same piece as the one before."""
        self._looked += 1
        return row < self._pool.num_blocks and self._table.follows(row)

    def _movable(self, first: int, end: int) -> bool:
        """Whether the tier alone holds these rows."""
        alone = bool((self._pool.holders[first:end] == 1).all())
        self._held_up |= not alone
        return alone
