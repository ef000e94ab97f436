"""GDSF-like: what it would cost to have a block again, per byte, times how often it was used."""

from dataclasses import dataclass

from cache_core.eviction.history import History
from cache_core.eviction.policy import Lookup
from cache_core.eviction.recorded import RecordedPolicy, current, end_of
from cache_core.eviction.short_hash import ShortHash
from cache_core.node import Node
from cache_core.tokens import Tokens

GHOSTS = 4  # blocks remembered beyond the cached ones, in capacities


@dataclass(frozen=True, slots=True)
class BlockCost:
    """Seconds that one block saves, and bytes it takes. Only ratios matter."""

    token_s: float = 1.0  # prefill of one token without attention
    attention_s: float = 1 / 8192  # attention of one token to one token before it
    reload_s: float | None = None  # to bring one block back from a lower tier; None: there is none
    block_bytes: float = 1.0

    def per_byte(self, depth: int, block_size: int) -> float:
        """Worth of one byte of a block that has `depth` tokens before it."""
        recompute = block_size * (self.token_s + self.attention_s * (depth + block_size / 2))
        seconds = recompute if self.reload_s is None else min(recompute, self.reload_s)
        return seconds / self.block_bytes


class Cost(RecordedPolicy):
    """A block's rank is uses x cost / bytes, above the rank of what was evicted when it was used last.

    That base makes what is not used again sink, whatever it cost. The parts of a prefix are worth more the
    deeper they are, but leaves still go first.
    """

    name = "cost"

    def __init__(self, cost: BlockCost | None = None) -> None:
        super().__init__()
        self._cost = cost or BlockCost()
        self._history = History(0, [])
        self._base = 0.0
        self._block_size = 1

    def bind(self, num_blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self._hash = ShortHash(block_size)
        self._history = History((1 + GHOSTS) * num_blocks, [0.0, 0.0])  # base at the last use; uses

    def accessed(self, node: Node, tokens: Tokens, scope: str, lookup: Lookup | None = None) -> int:
        path = self._history.path(scope, self._hash(tokens), lookup)
        for record in path:
            record.values[0] = self._base
            record.values[1] += 1
        self._history.settle(path)
        self._note(node, path)
        return self._history.ghosts

    def evicted(self, node: Node, blocks: int) -> None:
        self._base = max(self._base, self._score(node))

    def purged(self, scope: str) -> None:
        self._history.forget(scope)

    def _score(self, node: Node) -> float:
        record = current(node)
        if record is None:
            return self._base
        base, uses = record.values
        # of its last block; those before it are worth less, so the rest of the record goes right after it
        depth = (end_of(node) - 1) * self._block_size
        return base + uses * self._cost.per_byte(depth, self._block_size)
