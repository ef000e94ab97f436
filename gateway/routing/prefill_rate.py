"""How fast a replica prefills, going by first tokens."""

import statistics
from collections import deque

_KEPT = 31  # newest measurements
_SMALLEST = 256  # tokens; less is all overhead
_ENOUGH = 5  # measurements, from which on a replica's own count


class PrefillRates:
    """Tokens a second by replica: the median of its newest requests; of all replicas where it has few."""

    def __init__(self, prior: float) -> None:
        self._own: dict[str, deque[float]] = {}
        self._known: dict[str, float] = {}
        self._common = prior

    def saw(self, replica: str, tokens: int, seconds: float) -> None:
        """`tokens` were prefilled there, one after the other, until the first token came."""
        if tokens < _SMALLEST or seconds <= 0:
            return
        own = self._own.setdefault(replica, deque(maxlen=_KEPT))
        own.append(tokens / seconds)
        if len(own) >= _ENOUGH:
            self._known[replica] = statistics.median(own)
            self._common = statistics.median(self._known.values())

    def of(self, replica: str) -> float:
        """Tokens a second."""
        return self._known.get(replica, self._common)

    def forget(self, replica: str) -> None:
        """It may be another machine when it is back."""
        self._own.pop(replica, None)
        self._known.pop(replica, None)
