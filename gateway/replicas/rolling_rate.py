"""The share of failures among the requests of the last seconds, in a few counters whatever the load."""

_PARTS = 10  # of the window; the oldest part leaves as a whole


class RollingRate:
    """Times only go forward."""

    def __init__(self, window_s: float) -> None:
        self._part_s = window_s / _PARTS
        self._parts: dict[int, list[int]] = {}  # by number of the part: requests, bad ones
        self._newest = -1  # part that was looked at

    def add(self, now: float, *, bad: bool) -> None:
        """One request has ended."""
        counts = self._parts.setdefault(self._forget(now), [0, 0])
        counts[0] += 1
        counts[1] += bad

    def share(self, now: float) -> tuple[float, int]:
        """The share of bad ones, and among how many."""
        self._forget(now)
        requests = sum(counts[0] for counts in self._parts.values())
        bad = sum(counts[1] for counts in self._parts.values())
        return (bad / requests if requests else 0.0), requests

    def clear(self) -> None:
        """Begin anew."""
        self._parts.clear()

    def _forget(self, now: float) -> int:
        newest = int(now / self._part_s)
        if newest == self._newest:
            return newest
        self._newest = newest
        for part in [part for part in self._parts if part <= newest - _PARTS]:
            del self._parts[part]
        return newest
