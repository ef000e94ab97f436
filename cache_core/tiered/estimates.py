"""What bringing blocks up and computing them takes here, as measured."""

from collections.abc import Collection, Sequence
from threading import Lock

from cache_core.eviction import MeasuredCosts
from cache_core.load_or_recompute import LoadCost, LoadEstimator, Plan, PrefillEstimator, Seconds, plan
from cache_core.metrics import CacheObserver, Moved, TierName

# Assumed until measured: bytes a second, and seconds a batch.
_BANDWIDTH: dict[TierName, float] = {"host": 2e9, "disk": 5e8, "store": 2e8}
_SETUP: dict[TierName, float] = {"host": 1e-3, "disk": 5e-3, "store": 2e-2}
_TOKEN_SECONDS = 1e-3
_GAIN = (
    0.9  # of the better pure way's time: an overlap that is not expected to take less is not worth its risks
)
_UP = (("host", "device"), ("disk", "host"), ("store", "host"))


class Estimates:
    """Load and prefill estimators together, from any thread."""

    def __init__(self, block_bytes: int, block_size: int) -> None:
        self._block_bytes = block_bytes
        self._block_size = block_size
        self._lock = Lock()
        self._loads = LoadEstimator(_BANDWIDTH, _SETUP)
        self._prefill = PrefillEstimator(_TOKEN_SECONDS)

    def computed(self, start: int, tokens: int, seconds: float) -> None:
        """Tokens `start` .. `start + tokens` of one prompt were prefilled in that time."""
        with self._lock:
            self._prefill.observe(start, tokens, seconds)

    def moved(self, event: Moved) -> None:
        """A transfer ended."""
        if (event.source, event.target) in _UP and event.outcome == "done" and event.seconds is not None:
            with self._lock:
                self._loads.observe(event.source, event.moved_bytes, event.seconds)

    def recompute(self, start: int, blocks: int) -> Seconds:
        """Expected seconds to compute each of these blocks, the first of which begins at token `start`."""
        with self._lock:
            return self._prefill.block_seconds(start, blocks, self._block_size)

    def plan(self, sources: Sequence[TierName], start: int, overlap: bool = False) -> Plan:
        """How blocks from token `start` on that are in `sources` become ready soonest; see `plan`."""
        costs, recompute = self._costs(set(sources)), self.recompute(start, len(sources))
        if overlap:
            both = plan(sources, costs, recompute)
            if both.split < both.blocks and both.seconds < _GAIN * both.best_pure:
                return both
        return plan(sources, costs, recompute, overlap=False)

    def load(self, sources: Sequence[TierName], nbytes: int | None = None) -> float:
        """Expected seconds until a block, or that many bytes, came up from each; nothing for those on the device."""
        below = [tier for tier in sources if tier != "device"]
        costs = self._costs(set(below), nbytes)
        return sum(costs[tier].block for tier in below) + sum(costs[tier].setup for tier in set(below))

    def measured(self, tiers: Collection[TierName]) -> MeasuredCosts:
        """For the eviction policy. What a batch costs beside its blocks is left out."""
        with self._lock:
            token_s, attention_s = self._prefill.token
        reload_s = {tier: cost.block for tier, cost in self._costs(set(tiers)).items()}
        return MeasuredCosts(token_s, attention_s, reload_s)

    def _costs(self, tiers: set[TierName], nbytes: int | None = None) -> dict[TierName, LoadCost]:
        nbytes = self._block_bytes if nbytes is None else nbytes
        with self._lock:
            costs = {tier: self._loads.cost(tier, nbytes) for tier in tiers}
            up = self._loads.cost("host", nbytes)
        # What lies below the host passes through it: both ways are paid.
        return {
            tier: cost if tier == "host" else LoadCost(cost.setup + up.setup, cost.block + up.block)
            for tier, cost in costs.items()
        }


class MeasuringObserver(CacheObserver):
    """Tells the estimates how long loads took, and passes that on."""

    def __init__(self, inner: CacheObserver, estimates: Estimates) -> None:
        self._inner = inner
        self._estimates = estimates

    def moved(self, event: Moved) -> None:
        self._inner.moved(event)
        self._estimates.moved(event)
