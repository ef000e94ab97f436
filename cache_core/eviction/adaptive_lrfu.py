"""Recency and frequency, weighed as the traffic of the last thousand requests says."""

from collections.abc import Sequence
from math import log2

from cache_core.eviction.history import History, Record
from cache_core.eviction.policy import Lookup
from cache_core.eviction.recorded import RecordedPolicy, current
from cache_core.eviction.shadow import ShadowCache
from cache_core.eviction.short_hash import ShortHash
from cache_core.node import Node
from cache_core.tokens import Tokens

# Half-lives to choose from, in capacities' worth of requested blocks: one is the time in which requests ask for
# as many blocks as there are. The first is as good as LRU, the last nearly counts uses.
HALF_LIVES = (0.25, 1.0, 2.0, 4.0, 8.0, 16.0)
GHOSTS = 4  # blocks remembered beyond the cached ones, in capacities
VOTE_EVERY = 100  # requests
_KEPT_VOTES = 0.9  # weight of what was hit before the last vote, against what was hit since
_NEVER = float("-inf")
_NEGLIGIBLE = -60.0  # log2 of a weight that no longer changes a sum


class AdaptiveLRFU(RecordedPolicy):
    """The prefix with the lowest exponentially decayed number of uses goes first.

    A score is log2(sum over uses of 2**((use - now) / half-life)) + now / half-life. The second term makes it
    independent of now: only a use changes it, and scores compare without being brought up to date. A parent is
    used whenever its child is, so its score is never lower. Scores outlive eviction.

    A shadow cache for each half-life holds what that would have held; the one that hit most decides how the
    real cache ranks.
    """

    name = "adaptive_lrfu"

    def __init__(self, half_lives: Sequence[float] = HALF_LIVES, vote_every: int = VOTE_EVERY) -> None:
        super().__init__()
        self.half_lives = tuple(half_lives)
        self.chosen = middle_half_life(half_lives)  # index of the half-life in force
        self._vote_every = vote_every
        self._votes = [0.0] * len(half_lives)
        self._now = 0.0
        self.bind(1, 1)

    def bind(self, num_blocks: int, block_size: int) -> None:
        count = len(self.half_lives)
        self._capacity = num_blocks
        self._hash = ShortHash(block_size)
        self._history = History((1 + GHOSTS) * num_blocks, [_NEVER] * count, count)
        self._shadows = [ShadowCache(num_blocks, i, self._history) for i in range(count)]

    @property
    def half_life(self) -> float:
        """The one in force, in capacities' worth of requested blocks."""
        return self.half_lives[self.chosen]

    def accessed(self, node: Node, tokens: Tokens, scope: str, lookup: Lookup | None = None) -> int:
        path = self._history.path(scope, self._hash(tokens), lookup)
        self._now += (path[-1].start + path[-1].num_blocks) / self._capacity if path else 0.0
        self._score_up(path)
        for i, shadow in enumerate(self._shadows):
            self._votes[i] += shadow.request(path)
        self._history.settle(path)
        if path:
            self._note(node, path)
        if self._history.accesses % self._vote_every == 0:
            self._vote()
        return self._history.ghosts

    def purged(self, scope: str) -> None:
        for record in self._history.forget(scope):
            for shadow in self._shadows:
                shadow.forget(record)

    def _score_up(self, path: Sequence[Record]) -> None:
        times = [self._now / half_life for half_life in self.half_lives]
        for record in path:
            scores = record.values
            for i, now in enumerate(times):
                behind = scores[i] - now
                scores[i] = now + log2(1.0 + 2.0**behind) if behind > _NEGLIGIBLE else now

    def _vote(self) -> None:
        best = max(range(len(self._votes)), key=lambda i: (self._votes[i], i == self.chosen, -i))
        if best != self.chosen:
            self.chosen = best
            self._queue.reorder()
        self._votes = [hits * _KEPT_VOTES for hits in self._votes]

    def _score(self, node: Node) -> float:
        record = current(node)
        return _NEVER if record is None else record.values[self.chosen]


def middle_half_life(half_lives: Sequence[float]) -> int:
    """Which one is in force before the first vote: that nearest to a capacity's worth.

    Raises:
        ValueError: they are not positive and ascending.
    """
    if not half_lives or min(half_lives) <= 0 or list(half_lives) != sorted(half_lives):
        raise ValueError("half-lives are positive and ascending")
    return min(range(len(half_lives)), key=lambda i: abs(log2(half_lives[i])))
