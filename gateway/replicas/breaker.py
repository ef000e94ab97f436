"""A circuit breaker for one replica: closed, open, half open. Pure: the clock is given, nothing waits here.

Requests say how they ended. Failures in a row, or too large a share of failures among enough requests, open it; then
nobody is sent there for a while. After that a few probes are let through: enough good ones close it, a bad one opens
it again, for twice as long.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from gateway.replicas.rolling_rate import RollingRate

State: TypeAlias = Literal["closed", "open", "half_open"]
# unknown: nothing that speaks for or against the replica, a client that left for example
Outcome: TypeAlias = Literal["good", "bad", "unknown"]
Cause: TypeAlias = Literal["failures_in_a_row", "error_rate", "probe"]


@dataclass(frozen=True, slots=True)
class BreakerOptions:
    """When it opens, and how it closes again. Times are seconds."""

    failures: int = 5  # in a row
    error_rate: float = 0.5  # share of failures, among at least `requests` within `window_s`
    requests: int = 20
    window_s: float = 30.0
    open_s: float = 5.0  # the first time; twice as long after each failed probe
    longest_open_s: float = 60.0
    probes: int = 1  # at the same time
    good_probes: int = 2  # until it is closed


class Pass(msgspec.Struct, frozen=True):
    """One request that was let through; it is given back when the request has ended."""

    period: int  # half-open periods are counted: a probe of an earlier one says nothing about this one
    probe: bool


class Breaker:
    """Not locked: one event loop's."""

    def __init__(self, options: BreakerOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self._clock = clock
        self._state: State = "closed"
        self._in_a_row = 0
        self._rate = RollingRate(options.window_s)
        self._open_s = options.open_s
        self._until = 0.0  # open until then
        self._period = 0
        self._probes = 0  # that run
        self._good = 0  # probes of this period
        self.opened: dict[Cause, int] = {}  # how often, by cause
        self.since = clock()  # of the state that it is in

    @property
    def state(self) -> State:
        """As it is now: an open one becomes half open by the passing of time."""
        if self._state == "open" and self._clock() >= self._until:
            self._period += 1
            self._probes = self._good = 0
            self._become("half_open")
        return self._state

    @property
    def closed(self) -> bool:
        """Whether every request may go."""
        return self._state == "closed"

    @property
    def allows(self) -> bool:
        """Whether a request may go now."""
        state = self.state
        return state == "closed" or (state == "half_open" and self._probes < self._options.probes)

    @property
    def wait_s(self) -> float:
        """How long it stays open, at least; 0: it is not."""
        return max(0.0, self._until - self._clock()) if self.state == "open" else 0.0

    def begin(self) -> Pass:
        """A request goes, allowed or not: where all are open, some has to be asked."""
        probe = self._state != "closed" and self.state == "half_open"
        self._probes += probe
        return Pass(self._period, probe)

    def end(self, given: Pass, outcome: Outcome) -> State | None:
        """The request has ended so. Returns the state that this has brought about; None: it is as it was."""
        state = self.state
        current = given.probe and given.period == self._period and state == "half_open"
        self._probes -= current
        if state == "closed":
            self._count(outcome)
        elif current:
            self._probed(outcome)
        return None if self._state == state else self._state

    def _count(self, outcome: Outcome) -> None:
        if outcome == "unknown":
            return
        now = self._clock()
        self._rate.add(now, bad=outcome == "bad")
        if outcome == "good":
            self._in_a_row = 0
            return
        self._in_a_row += 1
        share, requests = self._rate.share(now)
        if self._in_a_row >= self._options.failures:
            self._open("failures_in_a_row")
        elif requests >= self._options.requests and share >= self._options.error_rate:
            self._open("error_rate")

    def _probed(self, outcome: Outcome) -> None:
        if outcome == "bad":
            self._open_s = min(2 * self._open_s, self._options.longest_open_s)
            self._open("probe")
        elif outcome == "good":
            self._good += 1
            if self._good >= self._options.good_probes:
                self._in_a_row = 0
                self._rate.clear()
                self._open_s = self._options.open_s
                self._become("closed")

    def _open(self, cause: Cause) -> None:
        self.opened[cause] = self.opened.get(cause, 0) + 1
        self._until = self._clock() + self._open_s
        self._become("open")

    def _become(self, state: State) -> None:
        self._state = state
        self.since = self._clock()
