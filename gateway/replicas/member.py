"""One replica in its pool: what is known of its health, and what runs there."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from gateway.relay.remote import Remote
from gateway.replicas.blame import AnsweredLately, Blame
from gateway.replicas.breaker import Breaker
from gateway.replicas.outliers import TtftWindow, away_s
from gateway.replicas.policy import PoolPolicy
from gateway.replicas.slow_start import SlowStart

MemberState: TypeAlias = Literal["ready", "away", "ejected"]


class Member:
    """Kept by its pool. `running` counts requests, those of a replica that has left the pool among them."""

    def __init__(
        self, remote: Remote, policy: PoolPolicy, clock: Callable[[], float], answered: AnsweredLately
    ) -> None:
        self.remote = remote
        self.id = remote.replica
        self.blame = Blame(answered)
        self.breaker = Breaker(policy.breaker, clock)
        self.slow_start = SlowStart(policy.slow_start_s, clock)
        self.ttft = None if policy.outliers is None else TtftWindow(policy.outliers)
        self.running = 0
        self.answered_at: float | None = None  # when a request got something from it; None: none has
        self.retired = False  # True: it is in the pool no more
        self.slow_ejections = 0
        self._policy = policy
        self._clock = clock
        self._slow_since = 0.0
        self._slow_until: float | None = None  # None: it was not found slow

    @property
    def calm(self) -> bool:
        """Whether nothing has happened lately that would keep any request from it."""
        return self._slow_until is None and self.breaker.closed and self.slow_start.over

    @property
    def ejected_since(self) -> float | None:
        """Since when what happened to requests keeps it from getting more; None: it gets them."""
        if self._still_slow():
            return self._slow_since
        return None if self.breaker.allows else self.breaker.since

    @property
    def state(self) -> MemberState:
        """In one word."""
        if not self.remote.ready:
            return "away"
        return "ready" if self.ejected_since is None else "ejected"

    def has(self, model: str) -> bool:
        """Whether it serves what clients call `model`, as far as that is known; empty: whatever it serves."""
        models = self.remote.models
        return not (models and model) or model in models

    def answered(self) -> None:
        """A request got something from it."""
        self.answered_at = self._clock()

    def found_slow(self) -> float:
        """It is left alone for a while, and the longer the more often that happens. Returns seconds."""
        assert self._policy.outliers is not None
        assert self.ttft is not None
        self.slow_ejections += 1
        self.ttft.clear()
        seconds = away_s(self.slow_ejections, self._policy.outliers)
        self._slow_since = self._clock()
        self._slow_until = self._slow_since + seconds
        return seconds

    def came(self, *, again: bool) -> None:
        """Its engine takes requests. `again`: others do, too, so that it can begin slowly."""
        if again:
            self.slow_start.begin()

    def went(self) -> None:
        """Its engine takes none; what comes back may be another process."""
        if self.ttft is not None:
            self.ttft.clear()

    def _still_slow(self) -> bool:
        if self._slow_until is None:
            return False
        if self._clock() < self._slow_until:
            return True
        self._slow_until = None
        self.slow_start.begin()
        return False
