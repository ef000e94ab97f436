"""Who is slow, and never everybody."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.replicas.outliers import Curve, OutlierOptions, TtftWindow, away_s, is_slow
from gateway.replicas.retry_budget import RetryBudget, RetryOptions
from gateway.replicas.slow_start import SlowStart
from tests.gateway.replicas.test_breaker import Clock

OPTIONS = OutlierOptions(factor=3, above_s=0.5, samples=4, window_s=60, away_s=30, longest_away_s=100)
works = st.lists(st.integers(0, 10**6), min_size=1, max_size=4, unique=True).map(sorted)
times = st.floats(0.001, 1000)


def flat(ttft: float) -> Curve:
    """A replica whose requests all had as much to prefill."""
    return Curve((1000.0,), (ttft,))


def slow_ones(medians: dict[str, float]) -> list[str]:
    """Who is slow of those with these times for the same work."""
    return [
        name
        for name, its in medians.items()
        if is_slow(flat(its), [flat(ttft) for other, ttft in medians.items() if other != name], OPTIONS)
    ]


def window_of(samples: list[tuple[int, float]], options: OutlierOptions = OPTIONS) -> TtftWindow:
    window = TtftWindow(options)
    for work, ttft in samples:
        window.add(0, ttft, work)
    return window


@given(st.dictionaries(st.sampled_from("abcdefgh"), times, max_size=8))
def test_somebody_is_always_left(given_: dict[str, float]) -> None:
    slow = slow_ones(given_)
    assert len(slow) < max(1, len(given_))
    if given_:
        assert min(given_, key=lambda each: given_[each]) not in slow


@given(works, st.lists(times, min_size=4, max_size=4), st.integers(0, 6), st.floats(1.01, 100))
def test_a_fleet_that_is_slow_as_a_whole_has_no_outlier(
    works_: list[int], ttfts: list[float], others: int, slower: float
) -> None:
    all_alike = Curve(tuple(works_), tuple(slower * ttft for ttft in ttfts[: len(works_)]))
    assert not is_slow(all_alike, [all_alike] * others, OPTIONS)


@given(st.integers(0, 10**5), st.integers(0, 10**5), st.floats(100, 10**4), st.floats(10, 10**5))
def test_equal_replicas_are_equal_whatever_each_has_to_prefill(
    its: int, theirs: int, overhead: float, rate: float
) -> None:
    """`overhead`: what else is done, in tokens that would take as long."""
    its_curve, their_curve = (Curve((float(work),), ((overhead + work) / rate,)) for work in (its, theirs))
    assert not is_slow(its_curve, [their_curve], OPTIONS)


def test_slow_is_far_from_the_others_in_both_ways() -> None:
    assert slow_ones({"a": 0.1, "b": 0.1, "c": 0.4}) == []  # four times, but not worth a detour
    assert slow_ones({"a": 1.0, "b": 1.0, "c": 2.0}) == []
    assert slow_ones({"a": 1.0, "b": 1.0, "c": 9.0, "d": 8.0}) == ["c", "d"]
    assert slow_ones({"a": 1.0, "b": 9.0}) == ["b"]
    assert slow_ones({"a": 9.0}) == []


def test_a_curve_is_straight_between_what_was_seen_and_never_says_too_little_beyond() -> None:
    curve = Curve((1000.0, 3000.0), (1.0, 2.0))
    assert [curve.at(work) for work in (0, 1000, 2000, 3000)] == [1.0, 1.0, 1.5, 2.0]
    assert 2.0 < curve.at(6000) <= 4.0


@given(st.lists(st.tuples(st.integers(0, 5000), times), min_size=4, max_size=40))
def test_a_curve_is_of_all_that_is_kept(samples: list[tuple[int, float]]) -> None:
    curve = window_of(samples).curve(0)
    assert curve is not None
    assert list(curve.works) == sorted(set(curve.works))
    kept = [ttft for _, ttft in samples[-4 * OPTIONS.samples :]]
    assert min(kept) <= min(curve.ttfts)
    assert max(curve.ttfts) <= max(kept)


def test_what_the_engine_says_it_prefilled_counts_in_the_place_of_what_was_thought() -> None:
    window = window_of([(10, 5.0)] * 4)
    before = window.curve(0)
    assert before is not None
    assert is_slow(before, [flat(0.5)], OPTIONS)
    for sample in list(window._kept):
        window.corrected(sample, 10_000)  # it had evicted what it was thought to have
    after = window.curve(0)
    assert after is not None
    assert not is_slow(after, [flat(0.5)], OPTIONS)


def test_few_or_old_samples_say_nothing() -> None:
    window = TtftWindow(OPTIONS)
    for now in (0, 1, 2):
        window.add(now, 1.0, 100)
    assert window.median(2) is window.curve(2) is None
    window.add(3, 5.0, 100)
    assert window.median(3) == 1.0
    assert window.curve(3) == Curve((100.0,), (1.0,))
    assert window.median(61) is window.curve(61) is None


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
