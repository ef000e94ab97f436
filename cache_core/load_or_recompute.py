"""For a hit below the device: which blocks to load, and which to compute anew because that is sooner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cache_core.metrics import Decided, TierName
from cache_core.prefill_estimator import Seconds

_LEAST, _MOST = 1e-6, 1e18  # of what is measured, in whatever unit


class DecayedLine:
    """The line `y = fixed + slope * x` through what was seen, older observations counting ever less.

    Neither is ever negative. Until observations differ enough in x to tell the two apart, `fixed` is the one
    given at the start. Not locked.
    """

    def __init__(self, fixed: float, slope: float, decay: float = 0.95) -> None:
        if fixed < 0 or slope < 0 or not 0 < decay < 1:
            raise ValueError(f"no line for a cost: {fixed} + {slope} x, decay {decay}")
        self.fixed = self._assumed = fixed
        self.slope = slope
        self._decay = decay
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def observe(self, x: float, y: float) -> None:
        """One more measurement; ignored unless x is in 1e-6 .. 1e18 and y in 0 .. 1e18: their products are finite."""
        if not (_LEAST <= x <= _MOST and 0 <= y <= _MOST):
            return
        if not self._n:
            self.fixed = self._assumed
        keep = self._decay
        self._n = keep * self._n + 1
        self._x = keep * self._x + x
        self._y = keep * self._y + y
        self._xx = keep * self._xx + x * x
        self._xy = keep * self._xy + x * y
        self._fit()

    def forget(self) -> None:
        """It says the same as before until the next observation, beside which nothing older counts.

        To count less would not do: few observations of small x would not move a line through old ones of large x.
        """
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def at(self, x: float) -> float:
        """What it says for `x`."""
        return self.fixed + self.slope * x

    def _fit(self) -> None:
        spread = self._xx - self._x * self._x / self._n
        if spread > 0.01 * self._xx / self._n:
            slope = (self._xy - self._x * self._y / self._n) / spread
            fixed = (self._y - slope * self._x) / self._n
            if slope >= 0 and fixed >= 0:
                self.slope, self.fixed = slope, fixed
                return
            # The best line through the origin or a flat one: what least squares gives at the border.
            self.slope, self.fixed = (self._xy / self._xx, 0.0) if slope >= 0 else (0.0, self._y / self._n)
            return
        self.fixed = min(self.fixed, self._y / self._n)
        self.slope = max(self._y - self._n * self.fixed, 0.0) / self._x


class LoadEstimator:
    """Seconds to bring blocks up from each tier: a fixed part a batch, and bytes over bandwidth."""

    def __init__(self, bandwidth: Mapping[TierName, float], setup: Mapping[TierName, float]) -> None:
        """Bytes a second and seconds a batch that are assumed until something was measured."""
        self._lines = {tier: DecayedLine(setup.get(tier, 0.0), 1 / rate) for tier, rate in bandwidth.items()}

    def observe(self, tier: TierName, nbytes: int, seconds: float) -> None:
        """A batch came up in that time, its wait in the queue left out."""
        self._lines[tier].observe(nbytes, seconds)

    def doubt(self, tier: TierName) -> None:
        """What was measured is long ago: the next measurement counts alone."""
        self._lines[tier].forget()

    def cost(self, tier: TierName, block_bytes: int) -> "LoadCost":
        """What a batch of blocks of that many bytes costs, if nothing else is on that way."""
        line = self._lines[tier]
        return LoadCost(setup=line.fixed, block=self.bytes_seconds(tier, block_bytes))

    def bytes_seconds(self, tier: TierName, nbytes: int) -> float:
        """What that many more bytes take on that way."""
        return self._lines[tier].slope * nbytes


@dataclass(frozen=True, slots=True)
class LoadCost:
    """Loading n > 0 blocks of a tier takes `setup + n * block` seconds."""

    setup: float
    block: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of the n found blocks below the device, numbered from 0 behind what the device has.

    First `front` are loaded. Then blocks [front, split) are recomputed while [split, n) are loaded.
    """

    front: int
    split: int
    blocks: int
    seconds: float  # expected until all are there
    load_all: float  # expected seconds
    recompute_all: float
    tried: bool = False  # not because it is expected to be sooner, but to see whether it is

    @property
    def loaded(self) -> int:
        """Blocks to load."""
        return self.front + self.blocks - self.split

    @property
    def recomputed(self) -> int:
        """Blocks to recompute."""
        return self.split - self.front

    @property
    def best_pure(self) -> float:
        """Expected seconds of the better one of loading all and recomputing all."""
        return min(self.load_all, self.recompute_all)

    def regret(self, actual: float) -> float:
        """Seconds lost to the better pure way, as far as it can be told: it was not taken."""
        return max(actual - self.best_pure, 0.0)

    def decided(self, tiers: Sequence[TierName]) -> Decided:
        """As an event; `tiers` as given to `plan`."""
        loaded: dict[TierName, int] = {}
        for tier in (*tiers[: self.front], *tiers[self.split :]):
            loaded[tier] = loaded.get(tier, 0) + 1
        return Decided(loaded, self.recomputed, self.seconds, self.best_pure, self.tried)


def plan(
    tiers: Sequence[TierName],
    costs: Mapping[TierName, LoadCost],
    recompute: Seconds,
    overlap: bool = True,
) -> Plan:
    """Choose how the found blocks below the device become ready soonest.

    `tiers[i]` says where block i is (the warmest place), `recompute[i]` how long its prefill takes. Recomputing
    goes from front to back. With `overlap`, the rear is loaded while the part before it is recomputed; else
    only a front is loaded, and the rest recomputed after it. Loads follow each other, and a tier's setup is
    paid once in the front and once in the rear. Never worse than the better pure way, if the costs are right.

    Raises:
        ValueError: not as many recompute costs as tiers.
    """
    n = len(tiers)
    if len(recompute) != n:
        raise ValueError(f"{n} blocks with {len(recompute)} recompute costs")
    compute = np.concatenate(([0.0], np.cumsum(recompute)))
    front_load = _load_up_to(tiers, costs)
    rear_load = _load_up_to(tiers[::-1], costs)[::-1]  # [i]: blocks i.. are loaded
    recompute_all, load_all = float(compute[n]), float(front_load[n])

    # The front alone: load [0, a), then recompute [a, n).
    seconds = front_load + (compute[n] - compute)
    best_front = _last_least(seconds)
    best = (float(seconds[best_front]), best_front, n)
    for front in _borders(tiers) if overlap else ():
        rest = np.maximum(compute[front:] - compute[front], rear_load[front:])
        split = front + int(np.argmin(rest))
        total = float(front_load[front] + rest[split - front])
        if total < best[0]:
            best = (total, front, split)
    return Plan(best[1], best[2], n, best[0], load_all, recompute_all)


def _load_up_to(tiers: Sequence[TierName], costs: Mapping[TierName, LoadCost]) -> Seconds:
    """[i]: seconds to load the first i blocks."""
    each = np.empty(len(tiers), dtype=np.float64)
    paid: set[TierName] = set()
    for place, tier in enumerate(tiers):
        cost = costs[tier]
        each[place] = cost.block if tier in paid else cost.block + cost.setup
        paid.add(tier)
    return np.concatenate(([0.0], np.cumsum(each)))


def _borders(tiers: Sequence[TierName]) -> list[int]:
    """0, and where the tier changes: it pays to load a whole warm stretch first, or none of it."""
    return [0, *(place for place in range(1, len(tiers)) if tiers[place] != tiers[place - 1])]


def _last_least(values: Seconds) -> int:
    """The last place of the least value: where both cost the same, loading leaves the processor to others."""
    return len(values) - 1 - int(np.argmin(values[::-1]))
