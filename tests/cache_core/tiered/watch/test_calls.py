"""Calls that do not come back: how many threads they may hold, and what whoever made them is told."""

import threading
from collections.abc import Callable, Iterator
from threading import Event

import pytest

from cache_core.metrics import RecordingObserver
from cache_core.tiered.watch.calls import Calls
from cache_core.tiered.watch.limits import CallLimits
from tests.cache_core.manual_clock import ManualClock
from tests.waiting import PATIENCE_S, wait_until

LIMITS = CallLimits(most_stuck=2, probe_every=1.0)


class Rig:
    """Calls of a tier that answers a look when `well` is set."""

    def __init__(self) -> None:
        self.clock, self.observer, self.well, self.looks = ManualClock(), RecordingObserver(), Event(), 0
        self.release, self.aside = Event(), 0
        self.calls = Calls("disk", LIMITS, self.clock, self.observer, self._probe, self._set_aside)

    def hang(self, kind: str = "read") -> None:
        """One more call hangs and is left alone."""
        call = self.calls.begin(kind, lambda: self.release.wait(PATIENCE_S), 1.0)  # type: ignore[arg-type]
        assert call is not None
        call.leave()

    def after(self, condition: Callable[[], bool]) -> None:
        """Let time pass until it holds."""

        def later() -> bool:
            self.clock.advance(LIMITS.probe_every)
            return condition()

        wait_until(later, "time to pass")

    def _probe(self) -> None:
        self.looks += 1
        if not self.well.is_set():
            raise OSError("away")

    def _set_aside(self) -> None:
        self.aside += 1


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.release.set()
    rig.calls.close()


def threads() -> int:
    return sum(thread.name == "kvgate disk call" for thread in threading.enumerate())


def test_what_a_call_gives_or_raises_reaches_who_made_it(rig: Rig) -> None:
    call = rig.calls.begin("read", lambda: 7, 1.0)
    assert call is not None
    assert call.wait(call.began + 1.0)
    assert call.result() == 7
    failing = rig.calls.begin("write", lambda: 1 // 0, 1.0)
    assert failing is not None
    assert failing.wait(failing.began + 1.0)
    with pytest.raises(ZeroDivisionError):
        failing.result()


def test_threads_are_used_again(rig: Rig) -> None:
    before = threads()
    for _ in range(50):
        call = rig.calls.begin("read", lambda: None, 1.0)
        assert call is not None
        assert call.wait(call.began + 1.0)
    assert threads() <= before + 4


def test_with_so_many_left_alone_no_more_are_begun_and_a_look_does_not_help_a_tier_that_is_not_well(
    rig: Rig,
) -> None:
    rig.hang()
    assert not rig.calls.away("read")
    rig.hang()
    assert rig.calls.away("read")
    assert rig.calls.begin("read", lambda: None, 1.0) is None
    assert rig.calls.begin("write", lambda: None, 1.0) is None
    assert rig.aside == 2
    rig.after(lambda: rig.looks >= 3)
    assert rig.calls.away("read")


def test_writes_that_hang_leave_reads_alone(rig: Rig) -> None:
    rig.hang("write")
    rig.hang("write")
    assert rig.calls.away("write")
    assert not rig.calls.away("read")
    call = rig.calls.begin("read", lambda: 1, 1.0)
    assert call is not None
    assert call.wait(call.began + 1.0)
    assert rig.observer.record().away == {("disk", "write"): True}


def test_one_that_returns_makes_room_for_another(rig: Rig) -> None:
    gone = Event()
    call = rig.calls.begin("read", lambda: gone.wait(PATIENCE_S), 1.0)
    assert call is not None
    over = Event()
    call.leave(over.set)
    rig.hang()
    assert rig.calls.away("read")
    gone.set()
    assert over.wait(PATIENCE_S), "who left it is told, too"
    wait_until(lambda: not rig.calls.away("read"), "the tier to be back")


def test_left_when_it_is_over_already_it_does_not_count(rig: Rig) -> None:
    for _ in range(3):
        call = rig.calls.begin("read", lambda: None, 1.0)
        assert call is not None
        assert call.wait(call.began + 1.0)
        told = Event()
        call.leave(told.set)
        assert told.is_set()
    assert not rig.calls.away("read")
    assert rig.observer.record().late_calls == {}


def test_a_tier_that_comes_back_again_and_again_holds_a_bounded_number_of_threads(rig: Rig) -> None:
    rig.well.set()
    for _ in range(100):
        while not rig.calls.away("read"):
            rig.hang()
        looks = rig.looks
        rig.after(lambda looks=looks: rig.looks > looks or not rig.calls.away("read"))  # type: ignore[misc]
        wait_until(lambda: not rig.calls.away("read") or threads() >= 16, "a look")
        if threads() > 17:
            break
    assert threads() <= 16 + LIMITS.most_stuck
    assert rig.calls.away("read"), "with so many lost, only a return counts"
    rig.release.set()
    wait_until(lambda: not rig.calls.away("read"), "the returns")


def test_after_the_end_nothing_is_begun(rig: Rig) -> None:
    rig.calls.close()
    assert rig.calls.begin("read", lambda: None, 1.0) is None


@pytest.mark.parametrize("field", ["ask", "read", "write", "clean", "most_stuck", "probe_every"])
def test_limits_are_more_than_nothing(field: str) -> None:
    with pytest.raises(ValueError, match="more than nothing"):
        CallLimits(**{field: 0})
