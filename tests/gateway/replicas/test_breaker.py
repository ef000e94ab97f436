"""A circuit breaker at random, against what must always hold of it."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from gateway.replicas.breaker import Breaker, BreakerOptions, Outcome, Pass
from gateway.replicas.rolling_rate import RollingRate


class Clock:
    """Goes on where the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


OPTIONS = BreakerOptions(
    failures=3, error_rate=0.5, requests=10, window_s=30, open_s=5, longest_open_s=20, probes=2, good_probes=2
)


class BreakerMachine(RuleBasedStateMachine):
    """Requests that are let through end in any order, at any time."""

    passes = Bundle("passes")

    @initialize()
    def begin(self) -> None:
        self.clock = Clock()
        self.breaker = Breaker(OPTIONS, self.clock)
        self.probes: list[Pass] = []  # that run and belong to this period
        self.opened_at: float | None = None

    @rule(seconds=st.floats(0, 12))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(target=passes)
    def ask(self) -> Pass | None:
        if not self.breaker.allows:
            return None
        given = self.breaker.begin()
        if self.breaker.state == "half_open":
            assert given.probe
            self.probes.append(given)
        return given

    @rule(given=consumes(passes), outcome=st.sampled_from(["good", "bad", "unknown"]))
    def end(self, given: Pass | None, outcome: Outcome) -> None:
        if given is None:
            return
        before = self.breaker.state
        changed = self.breaker.end(given, outcome)
        after = self.breaker.state
        assert changed == (after if after != before else None)
        if before == "open":
            assert after == "open"  # whatever began before it opened
        if before == "half_open" and not any(given is probe for probe in self.probes):
            assert after == "half_open"  # it says nothing about how the replica is now
        if outcome != "bad":
            assert after != "open" or before == "open"
        self.probes = [probe for probe in self.probes if probe is not given]
        if after != "half_open":
            self.probes = []
        if changed == "open":
            self.opened_at = self.clock.now

    @invariant()
    def probes_are_bounded(self) -> None:
        if self.breaker.state == "half_open":
            assert len(self.probes) <= OPTIONS.probes
            assert self.breaker.allows == (len(self.probes) < OPTIONS.probes)

    @invariant()
    def it_is_open_for_its_time_and_no_longer(self) -> None:
        if self.opened_at is None:
            return
        waited = self.clock.now - self.opened_at
        if self.breaker.state == "open":
            assert waited < OPTIONS.longest_open_s
            assert 0 < self.breaker.wait_s <= OPTIONS.longest_open_s - waited + 1e-6
            assert not self.breaker.allows
        if waited < OPTIONS.open_s:
            assert self.breaker.state == "open"


TestBreaker = BreakerMachine.TestCase
TestBreaker.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


def ended(breaker: Breaker, *outcomes: Outcome) -> None:
    for outcome in outcomes:
        breaker.end(breaker.begin(), outcome)


def test_failures_in_a_row_open_it_and_others_begin_the_row_anew() -> None:
    breaker = Breaker(OPTIONS, Clock())
    ended(breaker, "bad", "bad", "good", "bad", "unknown", "bad")
    assert breaker.state == "closed"
    ended(breaker, "bad")
    assert (breaker.state, breaker.opened) == ("open", {"failures_in_a_row": 1})


def test_a_share_of_failures_opens_it_among_enough_requests() -> None:
    breaker = Breaker(OPTIONS, Clock())
    ended(breaker, *(("bad", "good") * 4), "bad")
    assert breaker.state == "closed"  # nine are too few
    ended(breaker, "good", "bad")
    assert breaker.opened == {"error_rate": 1}


def test_each_bad_probe_doubles_the_wait_up_to_the_longest() -> None:
    clock = Clock()
    breaker = Breaker(OPTIONS, clock)
    ended(breaker, "bad", "bad", "bad")
    waits = []
    for _ in range(4):
        waits.append(breaker.wait_s)
        clock.now += breaker.wait_s
        ended(breaker, "bad")
    assert waits == [5, 10, 20, 20]
    clock.now += breaker.wait_s
    ended(breaker, "good")
    assert breaker.state == "half_open"
    ended(breaker, "good")
    assert breaker.state == "closed"
    ended(breaker, "bad", "bad", "bad")
    assert breaker.wait_s == 5  # it was well in between


def test_a_probe_of_an_earlier_period_says_nothing() -> None:
    clock = Clock()
    breaker = Breaker(OPTIONS, clock)
    ended(breaker, "bad", "bad", "bad")
    clock.now += 5
    late, bad = breaker.begin(), breaker.begin()
    breaker.end(bad, "bad")
    clock.now += 10
    assert breaker.state == "half_open"
    assert breaker.end(late, "good") is None
    assert breaker.end(breaker.begin(), "good") is None
    assert breaker.state == "half_open"  # one good probe of two


@pytest.mark.parametrize(("after", "share"), [(0, 0.5), (20, 0.5), (40, 0.0)])
def test_a_rate_forgets(after: float, share: float) -> None:
    rate = RollingRate(30)
    rate.add(100, bad=True)
    rate.add(100, bad=False)
    assert rate.share(100 + after)[0] == share
