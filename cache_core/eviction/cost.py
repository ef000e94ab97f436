"""GDSF-like: what it would cost to have a block again, per byte, times how often it was used."""

from dataclasses import dataclass, replace

from cache_core.eviction.history import History
from cache_core.eviction.policy import LiesIn, Lookup, MeasuredCosts
from cache_core.eviction.recorded import RecordedPolicy, current, end_of
from cache_core.eviction.short_hash import ShortHash
from cache_core.metrics import TierName
from cache_core.node import Node
from cache_core.tokens import Tokens

_USUAL_DEPTH = 4096  # tokens
GHOSTS = 4  # blocks remembered beyond the cached ones, in capacities


@dataclass(frozen=True, slots=True)
class BlockCost:
    """Seconds that one block saves, and bytes it takes. Only ratios matter."""

    token_s: float = 1.0  # prefill of one token without attention
    attention_s: float = 1 / 8192  # attention of one token to one token before it
    reload_s: float | None = (
        None  # to bring one block back where no tier is known to have it; None: impossible
    )
    block_bytes: float = 1.0

    def per_byte(self, depth: int, block_size: int, reload_s: float | None = None) -> float:
        """Worth of one byte of a block with `depth` tokens before it, which a lower tier gives back in `reload_s`."""
        recompute = block_size * (self.token_s + self.attention_s * (depth + block_size / 2))
        reload = self.reload_s if reload_s is None else reload_s
        seconds = recompute if reload is None else min(recompute, reload)
        return seconds / self.block_bytes

    def token(self) -> float:
        """Seconds to prefill one token at a usual depth."""
        return self.token_s + self.attention_s * _USUAL_DEPTH


class Cost(RecordedPolicy):
    """A block's rank is uses x cost / bytes, above the rank of what was evicted when it was used last.

    That base makes what is not used again sink, whatever it cost. The parts of a prefix are worth more the
    deeper they are, but leaves still go first. What is measured takes the place of what was assumed, in the unit of
    that: ranks from before still compare.
    """

    name = "cost"

    def __init__(self, cost: BlockCost | None = None) -> None:
        super().__init__()
        self._cost = cost or BlockCost()
        self._lies_in: LiesIn = lambda _: None
        self._reload: dict[TierName, float] = {}  # seconds of a block, by the tier that has it
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

    def measured(self, costs: MeasuredCosts, lies_in: LiesIn) -> None:
        self._lies_in = lies_in
        token = costs.token_s + costs.attention_s * _USUAL_DEPTH
        if token <= 0:
            return  # nothing was measured yet
        unit = self._cost.token() / token
        token_s, attention_s = costs.token_s * unit, costs.attention_s * unit
        reload = {tier: seconds * unit for tier, seconds in costs.reload_s.items()}
        if _near(attention_s, self._cost.attention_s) and all(
            _near(seconds, self._reload.get(tier, 0.0)) for tier, seconds in reload.items()
        ):
            return
        self._cost = replace(self._cost, token_s=token_s, attention_s=attention_s)
        self._reload = reload
        self._queue.reorder()

    def purged(self, scope: str) -> None:
        self._history.forget(scope)

    def _score(self, node: Node) -> float:
        record = current(node)
        if record is None:
            return self._base
        base, uses = record.values
        # of its last block; those before it are worth less, so the rest of the record goes right after it
        depth = (end_of(node) - 1) * self._block_size
        tier = self._lies_in(node)
        reload_s = None if tier is None else self._reload.get(tier)
        return base + uses * self._cost.per_byte(depth, self._block_size, reload_s)


def _near(new: float, old: float) -> bool:
    """Not worth a new order of all there is."""
    return abs(new - old) <= 0.2 * old
