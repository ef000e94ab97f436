"""How much may be sent again: a share of what is sent, so that retries cannot multiply the load in trouble."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """Sending a request to another replica while the client has no byte of an answer. `tries`: 1 is no retry."""

    tries: int = 3  # of one request, the first one among them
    budget: float = 0.2  # retries for each request, over all of them
    reserve: int = 10  # retries that are saved up at most, and are there at the start
    per_s: float = 0.5  # retries a second that are there whatever the load


class RetryBudget:
    """One engine's. Not locked: one event loop's."""

    def __init__(self, options: RetryOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self._clock = clock
        self._left = float(options.reserve)
        self._at = clock()
        self.refused = 0  # retries that there was no budget for

    def request(self) -> None:
        """A request comes, which brings its share."""
        self._add(self._options.budget)

    def take(self) -> bool:
        """Whether a retry may be sent; it counts as sent."""
        now = self._clock()
        self._add((now - self._at) * self._options.per_s)
        self._at = now
        if self._left < 1:
            self.refused += 1
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """A retry that was taken was not sent."""
        self._add(1)

    def _add(self, retries: float) -> None:
        self._left = min(self._left + retries, float(self._options.reserve))
