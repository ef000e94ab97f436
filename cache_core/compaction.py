"""Compaction: in idle time, cached blocks move so that prefixes lie together, and so does what is free."""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from cache_core.block_pool import BlockPool, Blocks
from cache_core.compaction_passes import LOOKED_AT, Pass, Passes, lower_at, whole_at
from cache_core.metrics import CacheObserver
from cache_core.node import Node
from cache_core.prefix_index import PrefixIndex

_WORTH = 64  # blocks that may be moved to put two parts of a prefix together


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

    It goes over all nodes, an edge at a time, until nothing is left to gain: see `Passes`.

    Args:
        copy: copies the bytes of whole blocks; where it raises, it has released its targets.
    """

    def __init__(
        self,
        pool: BlockPool,
        index: PrefixIndex,
        copy: Callable[[Blocks, Blocks], None],
        observer: CacheObserver,
    ) -> None:
        self.moved = 0  # blocks, since the start
        self._pool = pool
        self._index = index
        self._copy = copy
        self._observer = observer
        self._move: _Move | None = None
        self._passes = Passes(pool)
        self._unseen: list[Node] = []  # nodes it has not collected yet
        self._seen: list[tuple[int, int, Node]] = []  # a heap: order, a number against ties, node

    def wake(self) -> None:
        """A lease let go of something, or blocks became free: there may be more to do than there was."""
        self._passes.wake()

    def forget(self) -> None:
        """Hold on to no node, as the tokens in it may have to go for good; begin anew."""
        self._move = None
        self._unseen, self._seen = [], []
        self.wake()

    def step(self, limit: int) -> bool:
        """Look at some nodes, or move up to `limit` blocks; whether there is more to do."""
        if self._passes.asleep:
            return False
        if self._move is None:
            self._move = self._next_move()
        if self._move is not None:
            self._go_on(self._move, limit)
        return not self._passes.asleep

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
        self._observer.compacted("device", len(target))
        self._passes.moved()
        if end < move.stop:
            self._move = _Move(node, end, move.stop, move.target + len(target), node.blocks)

    def _next_move(self) -> _Move | None:
        """From some more nodes of this pass; None: nothing is to be gained from them."""
        if self._unseen:
            self._collect()
            return None
        for _ in range(LOOKED_AT):
            if not self._seen:
                if self._passes.over():
                    self._unseen = list(self._index.roots())
                return None
            _, _, node = heappop(self._seen)
            if _movable(node) and (move := self._worth_moving(node)) is not None:
                return move
        return None

    def _collect(self) -> None:
        for _ in range(min(LOOKED_AT, len(self._unseen))):
            node = self._unseen.pop()
            if node.children:
                self._unseen.extend(node.children.values())
            if _movable(node):
                first = int(node.block_ids()[0])
                heappush(
                    self._seen, (first if self._passes.kind is Pass.SLIDE else -first, len(self._seen), node)
                )

    def _worth_moving(self, node: Node) -> _Move | None:
        blocks, kind = node.block_ids(), self._passes.kind
        cuts = (np.flatnonzero(np.diff(blocks) != 1) + 1).tolist()
        if kind is Pass.GATHER:
            return self._together(node, len(cuts)) if cuts else None
        if not self._passes.fragmented:
            return None
        for place, stop in pairwise((0, *cuts, len(blocks))):
            target = lower_at(self._pool, int(blocks[place]), stop - place, kind)
            if target is not None:
                return _Move(node, place, stop, target, node.blocks)
        return None

    def _together(self, node: Node, cuts: int) -> _Move | None:
        """The whole of an edge that lies in parts into one free run, behind its parent if there is room."""
        count = node.num_blocks
        if count > _WORTH * cuts:
            return None
        behind = None
        if node.parent is not None and node.parent.num_blocks:
            behind = int(node.parent.block_ids()[-1]) + 1
        target = whole_at(self._pool, count, behind)
        return None if target is None else _Move(node, 0, count, target, node.blocks)


def _movable(node: Node) -> bool:
    """A node in a tree, with blocks, that no lease pins."""
    return node.parent is not None and node.leases == 0 and node.num_blocks > 0
