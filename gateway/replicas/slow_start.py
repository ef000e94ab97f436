"""A replica that has come back gets a growing share of the requests that could go there, and not all at once."""

from collections.abc import Callable

_LEAST = 0.1  # share of requests, at the beginning


class SlowStart:
    """Lets through a part of the asks that grows from a tenth to all of them within `window_s` seconds."""

    def __init__(self, window_s: float, clock: Callable[[], float]) -> None:
        self._window_s = window_s
        self._clock = clock
        self._since: float | None = None  # None: it takes everything
        self._credit = 0.0

    @property
    def over(self) -> bool:
        """Whether it takes everything, as it was found last."""
        return self._since is None

    @property
    def share(self) -> float:
        """Of requests that it takes now."""
        if self._since is None:
            return 1.0
        grown = (self._clock() - self._since) / self._window_s
        if grown >= 1:
            self._since = None
        return max(_LEAST, min(1.0, grown))

    def begin(self) -> None:
        """It is back."""
        if self._window_s > 0:
            self._since = self._clock()
            self._credit = 0.0

    def takes(self) -> bool:
        """Whether the next request may go there. Asked once for each."""
        share = self.share
        if share >= 1:
            return True
        self._credit += share
        if self._credit < 1:
            return False
        self._credit -= 1
        return True
