"""The clock that transfers wait by, so that tests can be the clock."""

import time
from threading import Condition
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds."""

    def now(self) -> float:
        """Seconds since some fixed moment."""
        ...

    def wait(self, condition: Condition, seconds: float | None) -> None:
        """Wait on `condition`, which the caller holds, until notified or that long; may return early."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, condition: Condition, seconds: float | None) -> None:
        condition.wait(seconds)
