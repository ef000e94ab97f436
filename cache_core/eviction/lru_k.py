"""LRU-K: the prefix whose K-th last use is longest ago goes first, remembered beyond its eviction."""

from cache_core.eviction.history import History
from cache_core.eviction.policy import Lookup
from cache_core.eviction.recorded import RecordedPolicy, current
from cache_core.eviction.short_hash import ShortHash
from cache_core.node import Node
from cache_core.tokens import Tokens

GHOSTS = 4  # blocks remembered beyond the cached ones, in capacities
_NEVER = float("-inf")
_FAR = 2.0**51  # more accesses than there will be; floats still tell neighbours apart


class LRUK(RecordedPolicy):
    """Prefixes used fewer than `k` times go before all others, the least recently used of them first.

    A parent is used whenever its child is, so its K-th last use is never older than its child's.
    """

    name = "lru_k"

    def __init__(self, k: int = 2) -> None:
        if k < 1:
            raise ValueError(f"LRU-K looks at one use at least, not {k}")
        super().__init__()
        self._k = k
        self._history = History(0, [])

    def bind(self, num_blocks: int, block_size: int) -> None:
        self._hash = ShortHash(block_size)
        self._history = History((1 + GHOSTS) * num_blocks, [_NEVER] * self._k)

    def accessed(self, node: Node, tokens: Tokens, scope: str, lookup: Lookup | None = None) -> int:
        path = self._history.path(scope, self._hash(tokens), lookup)
        now = float(self._history.accesses)
        for record in path:
            record.values.append(now)
            del record.values[0]
        self._history.settle(path)
        self._note(node, path)
        return self._history.ghosts

    def purged(self, scope: str) -> None:
        self._history.forget(scope)

    def _score(self, node: Node) -> float:
        record = current(node)
        if record is None:
            return _NEVER
        kth, last = record.values[0], record.values[-1]
        return kth if kth != _NEVER else last - _FAR
