"""Who is slow, and never everybody."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.replicas.outliers import OutlierOptions, TtftWindow, away_s, slow_ones
from gateway.replicas.retry_budget import RetryBudget, RetryOptions
from gateway.replicas.slow_start import SlowStart
from tests.gateway.replicas.test_breaker import Clock

OPTIONS = OutlierOptions(factor=3, above_s=0.5, samples=4, window_s=60, away_s=30, longest_away_s=100)
medians = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0.001, 1000), max_size=8)


@given(medians)
def test_somebody_is_always_left(given_: dict[str, float]) -> None:
    slow = slow_ones(given_, OPTIONS)
    assert len(slow) < max(1, len(given_))
    assert slow == sorted(slow, key=lambda each: -given_[each])
    if given_:
        assert min(given_, key=lambda each: given_[each]) not in slow


@given(medians, st.floats(1.01, 100))
def test_a_fleet_that_is_slow_as_a_whole_has_no_outlier(given_: dict[str, float], times: float) -> None:
    same = dict.fromkeys(given_, times)
    assert slow_ones(same, OPTIONS) == []


def test_slow_is_far_from_the_others_in_both_ways() -> None:
    assert slow_ones({"a": 0.1, "b": 0.1, "c": 0.4}, OPTIONS) == []  # four times, but not worth a detour
    assert slow_ones({"a": 1.0, "b": 1.0, "c": 2.0}, OPTIONS) == []
    assert slow_ones({"a": 1.0, "b": 1.0, "c": 9.0, "d": 8.0}, OPTIONS) == ["c", "d"]
    assert slow_ones({"a": 1.0, "b": 9.0}, OPTIONS) == ["b"]


def test_few_or_old_samples_say_nothing() -> None:
    window = TtftWindow(OPTIONS)
    for now in (0, 1, 2):
        window.add(now, 1.0)
    assert window.median(2) is None
    window.add(3, 5.0)
    assert window.median(3) == 1.0
    assert window.median(61) is None


def test_each_time_it_is_left_alone_for_longer() -> None:
    assert [away_s(times, OPTIONS) for times in (1, 2, 3, 4)] == [30, 60, 90, 100]


@given(st.floats(0, 40), st.integers(1, 300))
def test_a_replica_that_is_back_gets_its_share_and_no_more(waited: float, asks: int) -> None:
    clock = Clock()
    slow = SlowStart(20, clock)
    slow.begin()
    clock.now += waited
    taken = sum(slow.takes() for _ in range(asks))
    assert abs(taken - asks * max(0.1, min(1.0, waited / 20))) <= 1 + 1e-6


def test_who_was_never_away_takes_everything() -> None:
    assert all(SlowStart(20, Clock()).takes() for _ in range(100))
    at_once = SlowStart(0, Clock())
    at_once.begin()
    assert all(at_once.takes() for _ in range(100))


@given(st.lists(st.sampled_from(["request", "retry", "wait"]), max_size=300))
def test_retries_are_never_more_than_their_share(steps: list[str]) -> None:
    clock = Clock()
    options = RetryOptions(budget=0.2, reserve=5, per_s=0.5)
    budget = RetryBudget(options, clock)
    taken = 0
    for step in steps:
        if step == "request":
            budget.request()
        elif step == "wait":
            clock.now += 1
        else:
            taken += budget.take()
    assert taken <= 5 + 0.2 * steps.count("request") + 0.5 * steps.count("wait") + 1e-6
    assert taken + budget.refused == steps.count("retry")
