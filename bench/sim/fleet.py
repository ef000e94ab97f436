"""N simulated replicas under one trace: an LRU of blocks each, a queue of prefills, decodes that take their time."""

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.sim.trace import TRACE_BLOCK

PREFILL_TOKENS_PER_S = (
    8000.0  # of one replica, one prompt after the other: a 70B model on four large GPUs, about
)
DECODE_S = 0.02  # from one token of an answer to the next


class LruBlocks:
    """One replica's cache: contiguous prefixes, the ends evicted before the beginnings."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def matched(self, ids: Sequence[int]) -> int:
        """Blocks of a prompt that are there, from its beginning."""
        for depth, block in enumerate(ids):
            if block not in self._blocks:
                return depth
        return len(ids)

    def use(self, ids: Sequence[int]) -> int:
        """Blocks that hit; afterwards all of the prompt that fits is there."""
        hits, blocks = self.matched(ids), self._blocks
        for block in reversed(ids[: self._capacity]):
            blocks[block] = None
            blocks.move_to_end(block)
        while len(blocks) > self._capacity:
            blocks.popitem(last=False)
        return hits


@dataclass(slots=True)
class Replica:
    """One of the fleet."""

    cache: LruBlocks
    free_at: float = 0.0  # seconds: when its queue is empty
    recomputed: int = 0  # blocks


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request."""

    hits: int  # blocks
    ttft_s: float


class Clock:
    """The simulation's time, and what is to happen at which."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, when: float, event: Callable[[], None]) -> None:
        """Let `event` happen then."""
        heapq.heappush(self._events, (when, next(self._numbers), event))

    def go_to(self, when: float) -> None:
        """Let happen all that is due before, in its order."""
        while self._events and self._events[0][0] <= when:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = when


@dataclass(slots=True)
class Fleet:
    """All replicas. A prompt is prefilled when those before it are, and hits what the cache has by then."""

    count: int
    blocks: int  # that one replica's cache holds
    prefill_tokens_per_s: float = PREFILL_TOKENS_PER_S
    replicas: dict[str, Replica] = field(init=False)

    def __post_init__(self) -> None:
        self.replicas = {f"replica-{place}": Replica(LruBlocks(self.blocks)) for place in range(self.count)}

    def send(self, replica: str, ids: Sequence[int], now: float) -> Answer:
        """`replica` gets a prompt now."""
        its = self.replicas[replica]
        hits = its.cache.use(ids)
        missing = len(ids) - hits
        its.recomputed += missing
        its.free_at = max(now, its.free_at) + missing * TRACE_BLOCK / self.prefill_tokens_per_s
        return Answer(hits, its.free_at - now)

    @property
    def imbalance(self) -> float:
        """Recomputed tokens of the replica with most of them over the mean."""
        recomputed = [each.recomputed for each in self.replicas.values()]
        return max(recomputed) * len(recomputed) / sum(recomputed) if sum(recomputed) else 1.0
