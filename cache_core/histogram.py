"""A histogram with fixed logarithmic buckets, so that histograms of all processes and times can be added."""

from bisect import bisect_left
from dataclasses import dataclass

PER_DECADE = 5
# Upper bounds, 1 microsecond to 1000 seconds (or 1 to 10^9 of another unit times 10^-6).
SECONDS = tuple(10.0 ** (step / PER_DECADE) for step in range(-6 * PER_DECADE, 3 * PER_DECADE + 1))


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """Counts by bucket: `counts[i]` values are at most `bounds[i]`, the last count is of all above."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]  # one more than bounds
    count: int
    sum: float

    def quantile(self, q: float) -> float | None:
        """Upper bound of the bucket the `q`-quantile (0..1) lies in; infinity above the last; None: empty."""
        if not self.count:
            return None
        wanted, seen = q * self.count, 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return bound
        return float("inf")


class Histogram:
    """Not locked."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """One value, or the same one several times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def snapshot(self) -> HistogramSnapshot:
        """As of now."""
        return HistogramSnapshot(self._bounds, tuple(self._counts), sum(self._counts), self._sum)
