"""What bringing blocks up and computing them takes here, as measured."""

from collections.abc import Collection, Mapping, Sequence
from math import inf
from threading import Lock

from cache_core.eviction import MeasuredCosts
from cache_core.load_or_recompute import LoadCost, LoadEstimator, Plan, plan
from cache_core.metrics import CacheObserver, Moved, Outcome, TierName
from cache_core.prefill_estimator import Chunk, PrefillEstimator, Seconds
from cache_core.tiered.exploration import Exploration

# Assumed until measured: bytes a second, and seconds a batch.
_BANDWIDTH: dict[TierName, float] = {"host": 2e9, "disk": 5e8, "store": 2e8}
_SETUP: dict[TierName, float] = {"host": 1e-3, "disk": 5e-3, "store": 2e-2}
_TOKEN_SECONDS = 1e-3
_GAIN = (
    0.9  # of the better pure way's time: an overlap that is not expected to take less is not worth its risks
)
_UP = (("host", "device"), ("disk", "host"), ("store", "host"))
_TELLING: tuple[Outcome, ...] = ("done", "expired", "cancelled")
_NOTHING: Mapping[TierName, int] = {}


class Estimates:
    """Load and prefill estimators together, from any thread."""

    def __init__(self, block_bytes: int, block_size: int, trials: float = 0.0) -> None:
        """`trials`: share of what computing took that may be lost on trying to load, see `Exploration`."""
        self._block_bytes = block_bytes
        self._block_size = block_size
        self._lock = Lock()
        self._loads = LoadEstimator(_BANDWIDTH, _SETUP)
        self._prefill = PrefillEstimator(_TOKEN_SECONDS)
        self._exploration = Exploration(trials)

    def computed(self, chunks: Sequence[Chunk], seconds: float) -> None:
        """One step that prefilled these chunks of prompts took that long."""
        with self._lock:
            self._prefill.observe(chunks, seconds)

    def moved(self, event: Moved) -> None:
        """A transfer ended. One that was cut short tells as much, by what it moved until then."""
        if (event.source, event.target) in _UP and event.outcome in _TELLING and event.seconds is not None:
            with self._lock:
                self._loads.observe(event.source, event.moved_bytes, event.seconds)
                self._exploration.measured(event.source)

    def recompute(self, start: int, blocks: int) -> Seconds:
        """Expected seconds to compute each of these blocks, the first of which begins at token `start`."""
        with self._lock:
            return self._prefill.block_seconds(start, blocks, self._block_size)

    def plan(
        self,
        sources: Sequence[TierName],
        start: int,
        overlap: bool = False,
        ahead: Mapping[TierName, int] = _NOTHING,
        wait: float = inf,
    ) -> Plan:
        """How blocks from token `start` on that are in `sources` become ready soonest; see `plan`.

        `ahead` are bytes of others that come up first from each tier, see `Ways.ahead`. A load that is `tried` may be
        waited for in vain, `wait` seconds at most.
        """
        recompute = self.recompute(start, len(sources))
        best = self._soonest(sources, recompute, overlap, ahead)
        passed = slice(best.front, best.split)
        unmeasured = set(sources[passed]) - {*sources[: best.front], *sources[best.split :]}
        loss = min(best.load_all - best.seconds, wait)
        if not unmeasured or not self.tries(unmeasured, float(recompute[passed].sum()), loss):
            return best
        return Plan(
            best.blocks, best.blocks, best.blocks, best.load_all, best.load_all, best.recompute_all, True
        )

    def tries(self, tiers: Collection[TierName], computing: float, loss: float) -> bool:
        """Whether to load from these tiers although it is expected to be slower, see `Exploration`."""
        with self._lock:
            if not self._exploration.tries(tiers, computing, loss):
                return False
            for tier in {*tiers, "host"}:  # all of it comes through the host
                self._loads.doubt(tier)
            return True

    def _soonest(
        self, sources: Sequence[TierName], recompute: Seconds, overlap: bool, ahead: Mapping[TierName, int]
    ) -> Plan:
        costs = self._costs(set(sources), self._block_bytes, ahead)
        if overlap:
            both = plan(sources, costs, recompute)
            if both.split < both.blocks and both.seconds < _GAIN * both.best_pure:
                return both
        return plan(sources, costs, recompute, overlap=False)

    def load(
        self,
        sources: Sequence[TierName],
        nbytes: int | None = None,
        ahead: Mapping[TierName, int] = _NOTHING,
    ) -> float:
        """Expected seconds until a block, or that many bytes, came up from each; nothing for those on the device."""
        below = [tier for tier in sources if tier != "device"]
        costs = self._costs(set(below), nbytes or self._block_bytes, ahead)
        return sum(costs[tier].block for tier in below) + sum(costs[tier].setup for tier in set(below))

    def measured(self, tiers: Collection[TierName]) -> MeasuredCosts:
        """For the eviction policy. What a batch costs beside its blocks is left out."""
        with self._lock:
            token_s, attention_s = self._prefill.token
        reload_s = {tier: cost.block for tier, cost in self._costs(set(tiers), self._block_bytes).items()}
        return MeasuredCosts(token_s, attention_s, reload_s)

    def _costs(
        self, tiers: set[TierName], nbytes: int, ahead: Mapping[TierName, int] = _NOTHING
    ) -> dict[TierName, LoadCost]:
        with self._lock:
            queued = {tier: self._loads.bytes_seconds(tier, ahead.get(tier, 0)) for tier in {*tiers, "host"}}
            costs = {tier: self._loads.cost(tier, nbytes) for tier in tiers}
            up = self._loads.cost("host", nbytes)
        # What lies below the host passes through it: both ways are paid, and both queues get shorter meanwhile.
        return {
            tier: LoadCost(cost.setup + queued["host"], cost.block)
            if tier == "host"
            else LoadCost(cost.setup + up.setup + max(queued[tier], queued["host"]), cost.block + up.block)
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
