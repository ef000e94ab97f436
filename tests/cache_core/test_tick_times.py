"""Ages of ticks are right to one step, and old ones cost no room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_core.tick_times import TickTimes


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_tick_is_as_old_as_the_clock_says() -> None:
    clock = Hand()
    ticks = TickTimes(clock)
    for tick in range(1, 5):
        clock.now += 10
        ticks.note(tick)
    clock.now += 1
    assert [ticks.age(tick) for tick in range(5)] == [41, 31, 21, 11, 1]


def test_a_clock_that_was_set_back_makes_nothing_younger_than_now() -> None:
    clock = Hand()
    ticks = TickTimes(clock)
    clock.now += 10
    ticks.note(1)
    clock.now -= 1000
    ticks.note(2)
    assert ticks.age(0) == ticks.age(1) == ticks.age(2) == 0
    clock.now += 1005
    assert ticks.age(1) == 5


def test_what_was_before_it_began_is_at_least_as_old_as_it_is() -> None:
    clock = Hand()
    ticks = TickTimes(clock, first=50)
    clock.now += 7
    assert ticks.age(3) == ticks.age(50) == 7


@given(st.lists(st.floats(0.0, 5.0), min_size=1, max_size=200))
def test_no_age_is_too_small_and_none_more_than_a_step_too_large(pauses: list[float]) -> None:
    clock = Hand()
    ticks, times = TickTimes(clock, step=1.0), [clock.now]
    for tick, pause in enumerate(pauses, 1):
        clock.now += pause
        ticks.note(tick)
        times.append(clock.now)
    for tick, time in enumerate(times):
        assert clock.now - time <= ticks.age(tick) < clock.now - time + 1.0


def test_room_is_bounded_and_ages_stay_near() -> None:
    clock = Hand()
    ticks = TickTimes(clock, step=1.0)
    for tick in range(1, 20_000):
        clock.now += 1.0
        ticks.note(tick)
    assert len(ticks._ticks) <= 1024
    assert ticks.age(10_000) == pytest.approx(9_999, abs=64)
