"""Policies that rank a leaf by the record of its last block in a history."""

from abc import abstractmethod
from collections.abc import Sequence

from cache_core.eviction.history import Record
from cache_core.eviction.leaf_queue import LeafQueue
from cache_core.eviction.policy import EvictionPolicy
from cache_core.node import Node


class RecordedPolicy(EvictionPolicy):
    """Queues leaves by `_score`. A node knows a record at or below its end; splits and merges keep that true.

    Index nodes and records need not end at the same places: two index nodes used last at the same time are
    joined, although one of them was used more often. So only the part of a node that one record covers is a
    victim at a time.
    """

    def __init__(self) -> None:
        self._queue = LeafQueue(self._score)

    def offer(self, node: Node) -> None:
        self._queue.offer(node)

    def victim(self) -> Node | None:
        return self._queue.pop()

    def tail(self, node: Node) -> int:
        record = current(node)
        if record is None:
            return node.num_blocks
        return min(node.num_blocks, end_of(node) - record.start)

    @abstractmethod
    def _score(self, node: Node) -> float:
        """Lower goes first. Never falls by use."""

    @staticmethod
    def _note(node: Node, path: Sequence[Record]) -> None:
        """`path` is what is known of the path that ends at `node`."""
        step: Node | None = node
        while step is not None and step.parent is not None:
            step.record = path[-1]
            step = step.parent


def current(node: Node) -> Record | None:
    """The record that covers the last block of `node`."""
    record: Record | None = node.record
    if record is None:
        return None
    end = end_of(node)
    while record.start >= end and record.parent is not None:
        record = record.parent
    node.record = record
    return record


def end_of(node: Node) -> int:
    """Blocks from the root to the end of `node`."""
    total = 0
    step: Node | None = node
    while step is not None:
        total += step.num_blocks
        step = step.parent
    return total
