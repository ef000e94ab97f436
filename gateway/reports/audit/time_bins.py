"""Tokens over time in a bounded number of bins, however long the window turns out to be."""

import numpy as np
from numpy.typing import NDArray

_MOST = 1024  # bins; at the most twice as many while they are added to


class TimeBins:
    """Bins get twice as wide whenever there are too many of them. Bin `i` begins at `i * width` seconds."""

    def __init__(self) -> None:
        self.width = 1.0  # seconds
        self.first = 0  # number of the first bin
        self.reused = np.zeros(0)  # tokens, shape [bins]
        self.recomputed = np.zeros(0)

    def add(
        self,
        arrival: NDArray[np.float64],
        reused: NDArray[np.float64],
        recomputed: NDArray[np.float64],
    ) -> None:
        """Rows of one chunk, none of them NaN."""
        if not len(arrival):
            return
        begin, end = float(arrival.min()), float(arrival.max())
        if len(self.reused):
            begin = min(begin, self.first * self.width)
            end = max(end, (self.first + len(self.reused) - 1) * self.width)
        while end // self.width - begin // self.width >= _MOST:
            self._halve()
        first, bins = int(begin // self.width), int(end // self.width - begin // self.width) + 1
        places = (arrival // self.width).astype(np.int64) - first
        for name, tokens in (("reused", reused), ("recomputed", recomputed)):
            total = np.bincount(places, tokens, bins)
            known = getattr(self, name)
            total[self.first - first :][: len(known)] += known
            setattr(self, name, total)
        self.first = first

    def _halve(self) -> None:
        """Two bins become one."""
        if len(self.reused):
            odd = self.first % 2
            self.reused, self.recomputed = (_pairs(each, odd) for each in (self.reused, self.recomputed))
            self.first //= 2
        self.width *= 2

    def rows(self, most: int) -> list[tuple[float, float, float]]:
        """At most so many bins: begin in seconds, reused and recomputed tokens."""
        while len(self.reused) > most:
            self._halve()
        return [
            ((self.first + i) * self.width, float(reused), float(recomputed))
            for i, (reused, recomputed) in enumerate(zip(self.reused, self.recomputed, strict=True))
        ]


def _pairs(values: NDArray[np.float64], odd: int) -> NDArray[np.float64]:
    padded = np.pad(values, (odd, (len(values) + odd) % 2))
    total: NDArray[np.float64] = padded.reshape(-1, 2).sum(axis=1)
    return total
