"""Least recently used."""

from cache_core.eviction.leaf_queue import LeafQueue
from cache_core.eviction.policy import EvictionPolicy
from cache_core.node import Node


class LRU(EvictionPolicy):
    """The leaf that was used longest ago goes first."""

    name = "lru"

    def __init__(self) -> None:
        self._queue = LeafQueue(_last_access)

    def offer(self, node: Node) -> None:
        self._queue.offer(node)

    def victim(self) -> Node | None:
        return self._queue.pop()


def _last_access(node: Node) -> int:
    return node.last_access
