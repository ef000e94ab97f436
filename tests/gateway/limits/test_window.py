"""No 60 seconds hold more than was let pass, and a wait is as long as it says."""

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.limits.counter import LocalCounter
from gateway.limits.tenant_limits import TenantLimits
from gateway.limits.window import LASTS, Window
from tests.gateway.limits.clock import Clock

Steps = st.lists(st.tuples(st.floats(0, 30), st.integers(1, 9)), max_size=80)


@example(steps=[(0.7, 1), (29.55, 9), (29.55, 1)], limit=1)  # 59.1 seconds apart
@given(steps=Steps, limit=st.integers(1, 20))
def test_no_minute_holds_more_than_the_limit_wherever_it_begins(
    steps: list[tuple[float, int]], limit: int
) -> None:
    clock = Clock()
    counter = LocalCounter(clock)
    passed: list[tuple[float, int]] = []
    for n, (wait, tokens) in enumerate(steps):
        clock.now += wait
        verdict = counter.judged("a", TenantLimits(tokens_per_minute=limit), f"r{n}", tokens)
        if not verdict.over:
            passed.append((clock.now, tokens))
    for begin, _ in passed:
        assert sum(tokens for at, tokens in passed if begin <= at < begin + 60) <= limit


@given(steps=Steps, limit=st.integers(1, 20), tokens=st.integers(1, 20))
def test_after_the_wait_there_is_room_and_a_little_before_there_is_none(
    steps: list[tuple[float, int]], limit: int, tokens: int
) -> None:
    clock, limits = Clock(), TenantLimits(tokens_per_minute=limit)
    counter = LocalCounter(clock)
    for n, (wait, amount) in enumerate(steps):
        clock.now += wait
        counter.judged("a", limits, f"r{n}", amount)
    verdict = counter.judged("a", limits, "last", tokens)
    if not verdict.over or tokens > limit:
        return
    clock.now += verdict.wait_s - 0.01
    assert counter.judged("a", limits, "early", tokens).over
    clock.now += 0.02
    assert not counter.judged("a", limits, "in time", tokens).over


@given(steps=Steps, others=Steps, offset=st.integers(0, 1000))
def test_what_is_told_to_a_window_with_another_clock_counts_there_as_long(
    steps: list[tuple[float, int]], others: list[tuple[float, int]], offset: int
) -> None:
    one, two = filled(steps, 1000.25), filled(others, 1000.25 + offset)
    here, there = 1060.25, 1060.25 + offset
    alone = Window()
    alone.merge(there, one.parts(here))
    apart = Window()
    apart.merge(there, two.parts(there))
    two.merge(there, one.parts(here))
    for later in (0, 7, 30, 59, 60, LASTS):
        assert two.used(there + later) == alone.used(there + later) + apart.used(there + later)
        assert alone.used(there + later) == one.used(here + later)
    assert two.total == 0


def filled(steps: list[tuple[float, int]], begins: float) -> Window:
    window = Window()
    for wait, amount in steps[:20]:
        begins += wait / 10
        window.add(begins, amount)
    return window


@given(steps=Steps)
def test_what_is_given_back_is_never_more_than_was_added(steps: list[tuple[float, int]]) -> None:
    window, now = Window(), 1000.0
    for wait, amount in steps:
        now += wait
        window.used(now)
        window.add(now, amount)
        window.give_back(int(now - wait), 2 * amount)
        assert window.used(now) >= 0
    assert window.used(now + LASTS) == 0
    assert window.empty_in(now + LASTS) == 0
