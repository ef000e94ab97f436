"""Replicas whose first token takes much longer than elsewhere: medians against the median of the others."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class OutlierOptions:
    """What is slow, and for how long it is left alone. Times are seconds."""

    factor: float = 4.0  # times the median of the other replicas' medians
    above_s: float = 0.5  # and at least so much over it
    samples: int = 16  # of each replica, within `window_s`
    window_s: float = 120.0
    away_s: float = 30.0  # the first time; once more as long each further time
    longest_away_s: float = 300.0


class TtftWindow:
    """The newest times to first token of one replica."""

    def __init__(self, options: OutlierOptions) -> None:
        self._options = options
        self._kept: deque[tuple[float, float]] = deque(maxlen=4 * options.samples)  # when, and how long

    def add(self, now: float, ttft_s: float) -> None:
        """One request's first token has come, or has not come for so long."""
        self._kept.append((now, ttft_s))

    def median(self, now: float) -> float | None:
        """None: there are too few."""
        while self._kept and self._kept[0][0] < now - self._options.window_s:
            self._kept.popleft()
        if len(self._kept) < self._options.samples:
            return None
        return median(ttft for _, ttft in self._kept)

    def clear(self) -> None:
        """What it was before says nothing any more."""
        self._kept.clear()


def slow_ones(medians: Mapping[str, float], options: OutlierOptions) -> list[str]:
    """Who is slow among replicas with these medians (seconds), the slowest first. At least one is not."""
    slow = []
    for replica, its in medians.items():
        others = [other for name, other in medians.items() if name != replica]
        if others and its > options.factor * median(others) and its > options.above_s + median(others):
            slow.append(replica)
    return sorted(slow, key=lambda replica: -medians[replica])


def away_s(times: int, options: OutlierOptions) -> float:
    """How long a replica is left alone that was found slow for the `times`-th time."""
    return min(times * options.away_s, options.longest_away_s)
