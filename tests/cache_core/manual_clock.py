"""A clock that stands still until a test moves it."""

import threading
from threading import Condition, Lock


class ManualClock:
    """Waits end when the test moves time, or when they are notified."""

    def __init__(self) -> None:
        self._now = 0.0
        self._lock = Lock()
        self._waiting: list[Condition] = []
        self._seen = threading.local()

    def now(self) -> float:
        self._seen.now = self._now
        return self._now

    def wait(self, condition: Condition, seconds: float | None) -> None:
        with self._lock:
            if seconds is not None and self._now != getattr(self._seen, "now", self._now):
                return  # time moved after the caller looked: it must look again
            self._waiting.append(condition)
        condition.wait()

    def advance(self, seconds: float) -> None:
        """Let time pass, for whoever waits now and whoever is about to."""
        with self._lock:
            self._now += seconds
            waiting, self._waiting = self._waiting, []
        for condition in waiting:
            with condition:
                condition.notify_all()
