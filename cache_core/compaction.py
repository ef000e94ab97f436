"""Compaction: in idle time, cached blocks move so that prefixes lie together, and so does what is free."""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from cache_core.block_pool import BlockPool, Blocks
from cache_core.node import Node
from cache_core.prefix_index import PrefixIndex

_LOOKED_AT = 128  # nodes in one step: what bounds the time the cache's lock is held
_WORTH = 64  # blocks that may be moved to put two parts of a prefix together
_HOLES = 16  # that are compared for one move
_TOLERATED = 0.1  # fragmentation that is not worth a copy


@dataclass(slots=True)
class _Move:
    """Blocks `place` up to `stop` of an edge on their way to a free run, from their first one on."""

    node: Node
    place: int
    stop: int
    target: int  # block
    blocks: bytes  # the node's, as this move left them: another object says that somebody was there


class Compactor:
    """Moves blocks that are ready, indexed and under no lease. Not locked; the cache's lock is held around a step.

    It passes over all nodes until nothing is left to gain. In a pass from the highest blocks down, edges that lie in
    parts are put together, and parts go into holes further down that they fit. When that ends, a pass from the lowest
    blocks up lets them slide down over the holes below them. A finished move leaves fewer parts, or as many and
    lower ones, so it all comes to an end.

    Args:
        copy: copies the bytes of whole blocks; where it raises, it has released its targets.
    """

    def __init__(self, pool: BlockPool, index: PrefixIndex, copy: Callable[[Blocks, Blocks], None]) -> None:
        self.moved = 0  # blocks, since the start
        self._pool = pool
        self._index = index
        self._copy = copy
        self._move: _Move | None = None
        self._asleep = False  # nothing is left to gain
        self._sliding = False  # this pass
        self._stirred = True  # since it began, something was moved, or let go of
        self._unseen: list[Node] = []  # nodes it has not collected yet
        self._seen: list[tuple[int, int, Node]] = []  # a heap: order, a number against ties, node

    def wake(self) -> None:
        """A lease let go of something, or blocks became free: there may be more to do than there was."""
        self._asleep = False
        self._stirred = True

    def forget(self) -> None:
        """Hold on to no node, as the tokens in it may have to go for good; begin anew."""
        self._move = None
        self._unseen, self._seen = [], []
        self.wake()

    def step(self, limit: int) -> bool:
        """Look at some nodes, or move up to `limit` blocks; whether there is more to do."""
        if self._asleep:
            return False
        if self._move is None:
            self._move = self._next_move()
        if self._move is not None:
            self._go_on(self._move, limit)
        return not self._asleep

    def _go_on(self, move: _Move, limit: int) -> None:
        self._move = None  # so that whatever goes wrong ends it
        node = move.node
        if not _movable(node) or node.blocks is not move.blocks:
            return
        target = self._pool.allocate_at(move.target, min(limit, move.stop - move.place))
        if not len(target):
            return
        place, end = move.place, move.place + len(target)
        source = node.block_ids()[place:end]
        self._copy(source, target)
        self._pool.mark_ready(target)
        node.blocks = b"".join((node.blocks[: place * 4], target.tobytes(), node.blocks[end * 4 :]))
        self._pool.release(source)
        self.moved += len(target)
        self._stirred = True
        if end < move.stop:
            self._move = _Move(node, end, move.stop, move.target + len(target), node.blocks)

    def _next_move(self) -> _Move | None:
        """From some more nodes of this pass; None: nothing is to be gained from them."""
        if self._unseen:
            self._collect()
            return None
        for _ in range(_LOOKED_AT):
            if not self._seen:
                self._turn()
                return None
            _, _, node = heappop(self._seen)
            if _movable(node) and (move := self._worth_moving(node)) is not None:
                return move
        return None

    def _turn(self) -> None:
        """One pass is over, and what comes next depends on what it changed."""
        self._asleep = self._sliding and not self._stirred
        self._sliding = not self._sliding and not self._stirred
        self._stirred = False
        self._unseen = [] if self._asleep else list(self._index.roots())

    def _collect(self) -> None:
        for _ in range(min(_LOOKED_AT, len(self._unseen))):
            node = self._unseen.pop()
            if node.children:
                self._unseen.extend(node.children.values())
            if _movable(node):
                first = int(node.block_ids()[0])
                heappush(self._seen, (first if self._sliding else -first, len(self._seen), node))

    def _worth_moving(self, node: Node) -> _Move | None:
        blocks = node.block_ids()
        cuts = (np.flatnonzero(np.diff(blocks) != 1) + 1).tolist()
        together = self._together(node, len(cuts)) if cuts and not self._sliding else None
        if together is not None or self._pool.fragmentation() <= _TOLERATED:
            return together
        for place, stop in pairwise((0, *cuts, len(blocks))):
            target = self._lower(int(blocks[place]), stop - place)
            if target is not None:
                return _Move(node, place, stop, target, node.blocks)
        return None

    def _together(self, node: Node, cuts: int) -> _Move | None:
        """The whole of an edge that lies in parts into one free run, behind its parent if there is room."""
        count = node.num_blocks
        if count > _WORTH * cuts:
            return None
        if node.parent is not None and node.parent.num_blocks:
            behind = int(node.parent.block_ids()[-1]) + 1
            if self._pool.free_around(behind, behind)[1] >= count:
                return _Move(node, 0, count, behind, node.blocks)
        runs = self._pool.shortest_free_runs(count, 1)
        return _Move(node, 0, count, runs[0][0], node.blocks) if runs else None

    def _lower(self, first: int, count: int) -> int | None:
        """Where `count` blocks from `first` on should go; None: they stay."""
        before, behind = self._pool.free_around(first, first + count)
        if self._sliding:
            return first - before if before else None
        for start, length in self._pool.shortest_free_runs(count, _HOLES):
            # half of what the sum of the squares of all free runs grows by
            gain = count * (before + behind - length + count) + before * behind
            if start < first - before and gain >= 0:
                return start
        return None


def _movable(node: Node) -> bool:
    """A node in a tree, with blocks, that no lease pins."""
    return node.parent is not None and node.leases == 0 and node.num_blocks > 0
