"""A queue of evictable leaves whose keys are put right lazily."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count

from cache_core.node import Node

_TIDY_FROM = 1024  # entries below which dead ones are not worth looking for
_MOVED = 512  # entries that move to a new order with one call


class LeafQueue:
    """Leaves by ascending `key`, ties by arrival.

    A heap whose keys may be older than the nodes': using a node only ever raises its key, so a key is put
    right when it comes to the top and using a node costs nothing. A node whose key fell (it grew at its end)
    is queued anew when it is offered, and its older entry is dead. `node.queued` is the key of the live entry.
    """

    def __init__(self, key: Callable[[Node], float]) -> None:
        self._key = key
        self._heap: list[tuple[float, int, Node]] = []
        self._waiting: list[tuple[float, int, Node]] = []  # entries by an older order
        self._arrival = count()
        self._tidy_at = _TIDY_FROM

    def __len__(self) -> int:
        return len(self._heap) + len(self._waiting)

    def offer(self, node: Node) -> None:
        """`node` is evictable. One that is queued already stays where it is, or moves forward."""
        key = self._key(node)
        if self._waiting:
            self._move()
        elif node.queued is not None and node.queued <= key:
            return
        self._push(key, node)

    def pop(self) -> Node | None:
        """The evictable node with the lowest key, which leaves the queue; None: there is none."""
        while True:
            if self._waiting:
                self._move()
            heap = self._heap
            while heap:
                seen, arrival, node = heap[0]
                if node.queued != seen:
                    heappop(heap)
                    continue
                if node.evictable and (key := self._key(node)) > seen:
                    node.queued = key
                    heapreplace(heap, (key, arrival, node))
                    continue
                heappop(heap)
                node.queued = None
                if node.evictable:
                    return node
            if not self._waiting:
                return None

    def reorder(self) -> None:
        """The keys of all nodes changed. Entries move to the new order a few at a time, with every call.

        While they do, the lowest of those that have moved counts as the lowest.
        """
        self._waiting += self._heap
        self._heap = []

    def _push(self, key: float, node: Node) -> None:
        node.queued = key
        heappush(self._heap, (key, next(self._arrival), node))
        if len(self._heap) > self._tidy_at:
            self._tidy()

    def _move(self) -> None:
        """Entries whose node was queued anew since are dead and not moved."""
        for _ in range(min(_MOVED, len(self._waiting))):
            seen, _, node = self._waiting.pop()
            if node.queued == seen:
                node.queued = None
                if node.evictable:
                    self._push(self._key(node), node)

    def _tidy(self) -> None:
        """Let go of nodes that left the tree in another way than through this queue, and of dead entries."""
        kept = []
        for entry in self._heap:
            seen, _, node = entry
            if node.queued == seen:
                if node.evictable:
                    kept.append(entry)
                else:
                    node.queued = None
        heapify(kept)
        self._heap = kept
        self._tidy_at = max(_TIDY_FROM, 2 * len(kept))
