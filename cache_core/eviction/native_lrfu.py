"""Adaptive LRFU with its state in C: the same decisions, a fraction of the time and memory."""

import ctypes
import functools
import logging
import os
from collections.abc import Sequence

from cache_core.eviction.adaptive_lrfu import (
    GHOSTS,
    HALF_LIVES,
    VOTE_EVERY,
    AdaptiveLRFU,
    middle_half_life,
)
from cache_core.eviction.leaf_queue import LeafQueue
from cache_core.eviction.policy import EvictionPolicy, Lookup
from cache_core.eviction.recorded import end_of
from cache_core.eviction.short_hash import ShortHash
from cache_core.native import NativeBuildError, NativeState, library_folder, load_lrfu
from cache_core.node import Node
from cache_core.tokens import Tokens

log = logging.getLogger(__name__)

_NEVER = float("-inf")


class NativeLRFU(EvictionPolicy):
    """See `AdaptiveLRFU`, which says what is decided and why."""

    name = AdaptiveLRFU.name

    def __init__(
        self,
        library: ctypes.CDLL,
        half_lives: Sequence[float] = HALF_LIVES,
        vote_every: int = VOTE_EVERY,
    ) -> None:
        self.half_lives = tuple(half_lives)
        self.chosen = middle_half_life(half_lives)
        self._library = library
        self._vote_every = vote_every
        self._queue = LeafQueue(self._score)
        self.bind(1, 1)

    def bind(self, num_blocks: int, block_size: int) -> None:
        factors = ShortHash(block_size).factors
        limit = (1 + GHOSTS) * num_blocks
        self.state = NativeState(
            self._library, self.half_lives, self.chosen, num_blocks, limit, self._vote_every, factors
        )

    @property
    def half_life(self) -> float:
        """The one in force, in capacities' worth of requested blocks."""
        return self.half_lives[self.chosen]

    @property
    def outside_bytes(self) -> int:
        return self.state.counts().memory

    def accessed(self, node: Node, tokens: Tokens, scope: str, lookup: Lookup | None = None) -> int:
        ready, looked_up = lookup or (-1, 0)
        ghosts, chosen, record = self.state.accessed(scope, tokens, ready, looked_up)
        if record is not None:
            step = node
            while step.parent is not None:
                step.record = record
                step = step.parent
        if chosen != self.chosen:
            self.chosen = chosen
            self._queue.reorder()
        return ghosts

    def purged(self, scope: str) -> None:
        self.state.purged(scope)

    def offer(self, node: Node) -> None:
        self._queue.offer(node)

    def victim(self) -> Node | None:
        return self._queue.pop()

    def tail(self, node: Node) -> int:
        if node.record is None:
            return node.num_blocks
        end = end_of(node)
        _, start, node.record = self.state.current(node.record, end)
        return min(node.num_blocks, end - start)

    def _score(self, node: Node) -> float:
        if node.record is None:
            return _NEVER
        score, _, node.record = self.state.current(node.record, end_of(node))
        return score


def adaptive_lrfu() -> EvictionPolicy:
    """The compiled one, or, where that cannot be built, the one in Python."""
    library = _library()
    return AdaptiveLRFU() if library is None else NativeLRFU(library)


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        return load_lrfu(library_folder(os.environ))
    except (NativeBuildError, OSError) as error:
        log.warning("The eviction policy runs in Python, which takes some 40 us more a request: %s", error)
        return None
