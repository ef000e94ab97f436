"""When the ticks of a logical clock were."""

from bisect import bisect_right
from collections.abc import Callable
from threading import Lock

_LIMIT = 1024  # moments remembered


class TickTimes:
    """Ages of ticks, in bounded room: neighbours are taken together where there are many. From any thread.

    Ticks older than the first one it saw count as that one, so their age is a lower bound; all others are at most
    one `step` (seconds) too old, which doubles whenever room gets short.
    """

    def __init__(self, clock: Callable[[], float], first: int = 0, step: float = 0.01) -> None:
        self._clock = clock
        self._step = step
        self._lock = Lock()
        self._ticks = [first]
        self._times = [clock()]

    def note(self, tick: int) -> None:
        """It is that tick now; one that comes late, from another thread, is passed over."""
        now = self._clock()
        if now - self._times[-1] < self._step:
            return
        with self._lock:
            self._note(tick, now)

    def age(self, tick: int) -> float:
        """Seconds since that tick; 0 where the clock was set back."""
        with self._lock:
            place = max(bisect_right(self._ticks, tick) - 1, 0)
            return max(self._clock() - self._times[place], 0.0)

    def _note(self, tick: int, now: float) -> None:
        if tick <= self._ticks[-1]:
            return
        if len(self._ticks) >= _LIMIT:
            self._ticks, self._times = self._ticks[::2], self._times[::2]
            self._step *= 2
        self._ticks.append(tick)
        self._times.append(now)
