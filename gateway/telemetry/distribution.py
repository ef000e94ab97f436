"""Values counted by upper bounds, as histograms of Prometheus and OpenTelemetry both are."""

from bisect import bisect_left
from collections.abc import Sequence
from math import inf


class Distribution:
    """Values so far. A bucket holds its upper bound. Not locked.

    Attributes:
        bounds: upper ones, ascending; behind the last one there is one bucket more.
        counts: values by bucket, not those below it.
        sum: of all values.
        least: of all values; infinity where there are none, as `most` is its negative.
    """

    __slots__ = ("bounds", "counts", "least", "most", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0
        self.least, self.most = inf, -inf

    @property
    def count(self) -> int:
        """Of values."""
        return sum(self.counts)

    def add(self, values: Sequence[float]) -> None:
        """Count each of `values`."""
        if not values:
            return
        counts, bounds = self.counts, self.bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self.sum += sum(values)
        self.least = min(self.least, *values)
        self.most = max(self.most, *values)

    def merge(self, other: "Distribution") -> None:
        """Count what `other`, of the same bounds, has counted."""
        self.counts = [ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum
        self.least = min(self.least, other.least)
        self.most = max(self.most, other.most)
