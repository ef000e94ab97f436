"""A bandwidth budget: bytes that may be moved, refilled at a steady rate."""

import math


class TokenBucket:
    """Holds up to `burst` bytes and gains `rate` bytes a second; `rate` None: no limit. Not locked.

    A piece may start while anything is left and may take more than that: the debt is paid by waiting, so
    pieces larger than the burst pass, and the rate holds over any longer time.
    """

    def __init__(self, rate: float | None, burst: float = 0.0) -> None:
        if rate is not None and rate <= 0:
            raise ValueError(f"a bandwidth of {rate} bytes a second moves nothing")
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = -math.inf

    def delay(self, now: float) -> float:
        """Seconds until the next piece may start; 0: now."""
        if self._rate is None:
            return 0.0
        self._refill(now, self._rate)
        return max(-self._left, 0.0) / self._rate

    def spend(self, nbytes: int, now: float) -> None:
        """A piece of that size starts."""
        if self._rate is not None:
            self._refill(now, self._rate)
            self._left -= nbytes

    def _refill(self, now: float, rate: float) -> None:
        if now > self._at:  # a clock that jumps back gives nothing
            gained = 0.0 if math.isinf(self._at) else (now - self._at) * rate
            self._left = min(self._burst, self._left + gained)
            self._at = now
