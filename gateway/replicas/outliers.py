"""Replicas whose first token takes much longer than the others would need for as much prefill.

A first token waits for the prompt tokens that are prefilled before it. So a time says something of its replica only
beside these, and each is compared with what the others took for as many.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

_GROUP = 8  # samples at least, of which one point of a curve is made
_GROUPS = 4  # at most
_OVERHEAD = 256  # tokens; prefilling less takes about as long


@dataclass(frozen=True, slots=True)
class OutlierOptions:
    """What is slow, and for how long it is left alone. Times are seconds."""

    factor: float = 4.0  # times what the other replicas would take (their median)
    above_s: float = 0.5  # and at least so much over it
    samples: int = 16  # of each replica, within `window_s`
    window_s: float = 120.0
    away_s: float = 30.0  # the first time; once more as long each further time
    longest_away_s: float = 300.0


@dataclass(slots=True)
class Sample:
    """One stream's first token."""

    at: float  # when it was told
    ttft_s: float
    work: int  # prompt tokens that were prefilled until then, those that waited before it among them


@dataclass(frozen=True, slots=True)
class Curve:
    """What one replica takes for how much prefill: points in order of work, seconds by tokens. At least one."""

    works: tuple[float, ...]
    ttfts: tuple[float, ...]

    def at(self, work: float) -> float:
        """Seconds for so much, rather too many than too few.

        Beyond what it has done, time grows with work at most; for less than it ever did, it is as for its least.
        """
        works, ttfts = self.works, self.ttfts
        right = bisect_right(works, work)
        if right == 0:
            return ttfts[0]
        if right == len(works):
            return ttfts[-1] * (work + _OVERHEAD) / (works[-1] + _OVERHEAD)
        share = (work - works[right - 1]) / (works[right] - works[right - 1])
        return ttfts[right - 1] + share * (ttfts[right] - ttfts[right - 1])


class TtftWindow:
    """The newest times to first token of one replica."""

    def __init__(self, options: OutlierOptions) -> None:
        self._options = options
        self._kept: deque[Sample] = deque(maxlen=4 * options.samples)
        self._curve: Curve | None = None  # of what is kept; None: not made yet

    def add(self, now: float, ttft_s: float, work: int) -> Sample:
        """One request's first token has come, or has not come for so long."""
        sample = Sample(now, ttft_s, work)
        self._kept.append(sample)
        self._curve = None
        return sample

    def corrected(self, sample: Sample, work: int) -> None:
        """The engine has said how much it prefilled."""
        sample.work = work
        self._curve = None

    def median(self, now: float) -> float | None:
        """None: there are too few."""
        return median(each.ttft_s for each in self._kept) if self._enough(now) else None

    def curve(self, now: float) -> Curve | None:
        """None: there are too few."""
        if not self._enough(now):
            return None
        if self._curve is None:
            self._curve = _curve_of(self._kept)
        return self._curve

    def clear(self) -> None:
        """What it was before says nothing any more."""
        self._kept.clear()
        self._curve = None

    def _enough(self, now: float) -> bool:
        while self._kept and self._kept[0].at < now - self._options.window_s:
            self._kept.popleft()
            self._curve = None
        return len(self._kept) >= self._options.samples


def times_slower(its: Curve, others: Sequence[Curve]) -> float:
    """How many times longer a replica takes than `others` (at least one) would for what it did: the median."""
    return median(ttft / _theirs(others, work) for work, ttft in zip(its.works, its.ttfts, strict=True))


def is_slow(its: Curve, others: Sequence[Curve], options: OutlierOptions) -> bool:
    """Whether a replica is slow beside the others; without others nobody is."""
    if not others or times_slower(its, others) <= options.factor:
        return False
    pairs = zip(its.works, its.ttfts, strict=True)
    return median(ttft - _theirs(others, work) for work, ttft in pairs) > options.above_s


def away_s(times: int, options: OutlierOptions) -> float:
    """How long a replica is left alone that was found slow for the `times`-th time."""
    return min(times * options.away_s, options.longest_away_s)


def _theirs(others: Sequence[Curve], work: float) -> float:
    return max(1e-9, median(other.at(work) for other in others))


def _curve_of(samples: Sequence[Sample]) -> Curve:
    ordered = sorted(samples, key=lambda each: each.work)  # equal ones stay in the order they came
    groups = min(_GROUPS, max(1, len(ordered) // _GROUP))
    points: dict[float, float] = {}
    for number in range(groups):
        group = ordered[number * len(ordered) // groups : (number + 1) * len(ordered) // groups]
        work, ttft = median(each.work for each in group), median(each.ttft_s for each in group)
        points[work] = max(ttft, points.get(work, 0.0))
    return Curve(tuple(points), tuple(points.values()))
