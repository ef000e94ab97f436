"""Which cached prefix goes first when blocks run short."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count

from cache_core.errors import UnknownPolicyError
from cache_core.node import Node


class EvictionPolicy(ABC):
    """Orders victims, leaf-first. Never frees a block, never changes a node but its `queued` mark.

    Called under the cache's lock. Nodes go in and out of evictability all the time, so a policy may hold
    entries of nodes that are leased, no leaf or gone by now; `victim` must pass over them.
    """

    @abstractmethod
    def offer(self, node: Node) -> None:
        """`node` is evictable now. May be offered again while it is queued."""

    @abstractmethod
    def victim(self) -> Node | None:
        """The evictable node to shrink next, from its end; None where nothing is evictable.

        It leaves the queue: whoever leaves a rest of it offers it again.
        """


class LRU(EvictionPolicy):
    """The leaf that was used longest ago goes first.

    A heap whose keys may be older than the nodes' last access: a key is put right only when it comes to the
    top, so using a node costs nothing.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Node]] = []  # (last access when queued, order of arrival, node)
        self._arrival = count()
        self._tidy_at = 1024

    def offer(self, node: Node) -> None:
        if node.queued:
            return
        node.queued = True
        heappush(self._heap, (node.last_access, next(self._arrival), node))
        if len(self._heap) > self._tidy_at:
            self._tidy()

    def victim(self) -> Node | None:
        heap = self._heap
        while heap:
            seen, arrival, node = heap[0]
            if node.evictable and node.last_access != seen:
                heapreplace(heap, (node.last_access, arrival, node))
                continue
            heappop(heap)
            node.queued = False
            if node.evictable:
                return node
        return None

    def _tidy(self) -> None:
        """Let go of nodes that left the tree in another way than through this heap."""
        for _, _, node in self._heap:
            node.queued = node.evictable
        self._heap = [entry for entry in self._heap if entry[2].queued]
        heapify(self._heap)
        self._tidy_at = max(1024, 2 * len(self._heap))


POLICIES: dict[str, Callable[[], EvictionPolicy]] = {"lru": LRU}


def policy_named(name: str) -> EvictionPolicy:
    """A new policy of that name.

    Raises:
        UnknownPolicyError: there is none.
    """
    if name not in POLICIES:
        raise UnknownPolicyError(
            f"no eviction policy is called {name!r}; there are {', '.join(sorted(POLICIES))}"
        )
    return POLICIES[name]()
