"""Order, budget, bounds, failures and ends of transfers on one link."""

import threading
from collections.abc import Callable, Iterator

import pytest

from cache_core.metrics import NullObserver, RecordingObserver
from cache_core.transfer import (
    Leavable,
    Link,
    LinkConfig,
    Priority,
    SystemClock,
    Transfer,
    TransferRefusedError,
)
from cache_core.transfer.clock import Clock
from tests.cache_core.manual_clock import ManualClock
from tests.cache_core.transfer.jobs import FakeJob, Recorder
from tests.waiting import PATIENCE_S, wait_until

PATIENCE = PATIENCE_S
MakeLink = Callable[..., Link]


@pytest.fixture
def make_link() -> Iterator[MakeLink]:
    links: list[Link] = []

    def make(clock: Clock | None = None, observer: RecordingObserver | None = None, **config: object) -> Link:
        links.append(Link("test", LinkConfig(**config), clock or SystemClock(), observer or NullObserver()))  # type: ignore[arg-type]
        return links[-1]

    yield make
    assert all(link.close(PATIENCE) for link in links)


class Blocker:
    """Keeps a link's only thread busy until it is let go."""

    def __init__(self, link: Link) -> None:
        self.gate = threading.Event()
        self.job = FakeJob("blocker", pieces=1, gate=self.gate)
        self.transfer = link.submit(self.job, Priority.WAITING)
        assert self.job.begun.wait(PATIENCE)

    def let_go(self) -> None:
        self.gate.set()


def test_pieces_run_in_order_and_the_job_is_finished_once(make_link: MakeLink) -> None:
    job = FakeJob(pieces=5)
    transfer = make_link().submit(job, Priority.WAITING)
    assert transfer.wait(PATIENCE)
    assert transfer.done
    assert job.recorder.ran == [f"job{index}" for index in range(5)]
    assert job.arrived == [0, 1, 2, 3, 4]
    assert job.finished == [True]
    assert transfer.moved_bytes == 50
    assert transfer.cancel(PATIENCE), "cancelling what is done changes nothing"
    assert job.finished == [True]


def test_a_job_without_pieces_is_done(make_link: MakeLink) -> None:
    job = FakeJob(pieces=0)
    assert make_link().submit(job, Priority.WRITE_BACK).wait(PATIENCE)
    assert job.finished == [True]


def test_the_most_urgent_goes_first_and_the_first_among_equals(make_link: MakeLink) -> None:
    link, recorder = make_link(), Recorder()
    blocker = Blocker(link)
    order = [
        ("w", Priority.WRITE_BACK),
        ("p", Priority.PREFETCH),
        ("a", Priority.WAITING),
        ("b", Priority.WAITING),
    ]
    transfers = [link.submit(FakeJob(name, 2, recorder=recorder), priority) for name, priority in order]
    blocker.let_go()
    assert all(transfer.wait(PATIENCE) for transfer in transfers)
    assert recorder.ran == ["a0", "a1", "b0", "b1", "p0", "p1", "w0", "w1"]


def test_an_urgent_transfer_waits_for_one_piece_not_for_a_whole_write_back(make_link: MakeLink) -> None:
    link, recorder, gate = make_link(), Recorder(), threading.Event()
    slow = FakeJob("w", 3, recorder=recorder, gate=gate)
    write_back = link.submit(slow, Priority.WRITE_BACK)
    assert slow.begun.wait(PATIENCE)
    urgent = link.submit(FakeJob("a", 2, recorder=recorder), Priority.WAITING)
    gate.set()
    assert urgent.wait(PATIENCE)
    assert write_back.wait(PATIENCE)
    assert recorder.ran == ["w0", "a0", "a1", "w1", "w2"]


def test_a_promoted_prefetch_overtakes(make_link: MakeLink) -> None:
    link, recorder = make_link(), Recorder()
    blocker = Blocker(link)
    first = link.submit(FakeJob("p", 1, recorder=recorder), Priority.PREFETCH)
    second = link.submit(FakeJob("q", 1, recorder=recorder), Priority.PREFETCH)
    second.promote(Priority.WAITING)
    second.promote(Priority.WRITE_BACK)  # never less urgent
    blocker.let_go()
    assert first.wait(PATIENCE)
    assert second.wait(PATIENCE)
    assert recorder.ran == ["q0", "p0"]


def test_a_layer_is_there_before_the_rest(make_link: MakeLink) -> None:
    gates = [threading.Event() for _ in range(3)]
    job = FakeJob(pieces=3)
    job.run = lambda index: gates[index].wait(PATIENCE) and None  # type: ignore[assignment, method-assign, return-value]
    transfer = make_link().submit(job, Priority.WAITING)
    for layer, gate in enumerate(gates):
        assert not transfer.wait_layer(layer, 0.0)
        gate.set()
        assert transfer.wait_layer(layer, PATIENCE)
    assert transfer.wait(PATIENCE)
    assert transfer.wait_layer(2, 0.0)


def test_a_failed_piece_fails_its_transfer_alone(make_link: MakeLink) -> None:
    observer = RecordingObserver()
    link = make_link(observer=observer)
    bad, good = FakeJob("bad", 4, fails_at=1), FakeJob("good", 2)
    failed, done = link.submit(bad, Priority.WAITING), link.submit(good, Priority.WAITING)
    assert not failed.wait(PATIENCE)
    assert not failed.wait_layer(3, PATIENCE)
    assert done.wait(PATIENCE)
    assert (failed.outcome, bad.finished, bad.recorder.ran) == ("failed", [False], ["bad0"])
    assert isinstance(failed.error, OSError)
    assert observer.record().transfers["test", "waiting", "failed"] == 1
    assert observer.record().moved_bytes["host", "device"] == 30, "what moved before it failed counts"


def test_a_job_that_cannot_be_finished_fails_and_the_link_goes_on(make_link: MakeLink) -> None:
    link, job = make_link(), FakeJob()

    def broken(done: bool) -> None:
        raise RuntimeError("cannot publish")

    job.finish = broken  # type: ignore[method-assign]
    assert not link.submit(job, Priority.WAITING).wait(PATIENCE)
    assert link.submit(FakeJob(), Priority.WAITING).wait(PATIENCE)


def test_a_broken_callback_does_not_stop_the_others_or_the_link(make_link: MakeLink) -> None:
    link, blocked = make_link(), None
    blocked = Blocker(link)
    transfer, told = link.submit(FakeJob(), Priority.WAITING), threading.Event()
    transfer.when_ended(lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    transfer.when_ended(lambda _: told.set())
    blocked.let_go()
    assert told.wait(PATIENCE)
    late: list[Transfer] = []
    transfer.when_ended(late.append)
    assert late == [transfer]
    assert link.submit(FakeJob(), Priority.WAITING).wait(PATIENCE)


def test_what_is_cancelled_in_the_queue_never_runs(make_link: MakeLink) -> None:
    link = make_link()
    blocker, job = Blocker(link), FakeJob()
    transfer = link.submit(job, Priority.WAITING)
    assert transfer.cancel(PATIENCE)
    assert (transfer.outcome, job.finished, job.recorder.ran) == ("cancelled", [False], [])
    assert not transfer.wait(PATIENCE)
    blocker.let_go()
    assert blocker.transfer.wait(PATIENCE)
    assert job.recorder.ran == []


def test_a_cancel_waits_for_the_piece_at_work_and_pins_stay_until_then(make_link: MakeLink) -> None:
    clock = ManualClock()
    link, gate = make_link(clock), threading.Event()
    job = FakeJob(pieces=3, gate=gate)
    transfer = link.submit(job, Priority.WAITING)
    assert job.begun.wait(PATIENCE)
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(transfer.cancel(5.0)))
    waiter.start()
    while waiter.is_alive():
        clock.advance(1.0)
        waiter.join(0.001)
    assert answers == [False]
    assert job.finished == [], "the piece still writes: nothing may be let go of"
    gate.set()
    assert transfer.cancel()
    assert (job.finished, job.recorder.ran, job.written_after_finish) == ([False], ["job0"], False)


def test_a_wait_ends_at_its_timeout_and_the_transfer_may_still_come(make_link: MakeLink) -> None:
    clock = ManualClock()
    link = make_link(clock)
    blocker = Blocker(link)
    transfer = link.submit(FakeJob(), Priority.WAITING)
    assert in_time(clock, lambda: transfer.wait_layer(0, 2.0)) is False
    assert transfer.outcome is None
    blocker.let_go()
    assert transfer.wait()


def test_after_its_deadline_a_queued_transfer_is_dropped(make_link: MakeLink) -> None:
    clock, observer = ManualClock(), RecordingObserver()
    link = make_link(clock, observer)
    blocker, job = Blocker(link), FakeJob()
    transfer = link.submit(job, Priority.WAITING, deadline=3.0)
    unwatched = link.submit(FakeJob("late"), Priority.WAITING, deadline=3.0)
    assert in_time(clock, transfer.wait) is False
    assert (transfer.outcome, job.finished) == ("expired", [False])
    blocker.let_go()
    assert not unwatched.wait(PATIENCE)
    assert unwatched.outcome == "expired"
    assert observer.record().transfers["test", "waiting", "expired"] == 2


def in_time(clock: ManualClock, wait: Callable[[], bool]) -> bool:
    """What a wait says while time goes on."""
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(wait()))
    waiter.start()
    while waiter.is_alive():
        clock.advance(0.5)
        waiter.join(0.001)
    return answers[0]


def test_a_slow_link_moves_no_more_than_its_budget(make_link: MakeLink) -> None:
    clock = ManualClock()
    link = make_link(clock, bandwidth=10.0, burst=0.0)
    job = FakeJob(pieces=4, nbytes=10)
    transfer = link.submit(job, Priority.WAITING)
    for seconds in range(4):
        assert transfer.wait_layer(seconds, None if seconds == 0 else PATIENCE)
        assert len(job.recorder.ran) == seconds + 1
        clock.advance(1.0)
    assert transfer.wait()


def test_an_urgent_transfer_is_next_even_while_the_budget_is_waited_for(make_link: MakeLink) -> None:
    clock, recorder = ManualClock(), Recorder()
    link = make_link(clock, bandwidth=10.0, burst=0.0)
    write_back = link.submit(FakeJob("w", 2, recorder=recorder), Priority.WRITE_BACK)
    assert write_back.wait_layer(0)
    urgent = link.submit(FakeJob("a", 1, recorder=recorder), Priority.WAITING)
    clock.advance(1.0)
    assert urgent.wait()
    clock.advance(1.0)
    assert write_back.wait()
    assert recorder.ran == ["w0", "a0", "w1"]


def test_a_full_queue_refuses_and_gives_way_only_to_what_is_more_urgent(make_link: MakeLink) -> None:
    observer = RecordingObserver()
    link = make_link(observer=observer, max_queued=3)
    blocker = Blocker(link)
    old, young, refused = FakeJob("old"), FakeJob("young"), FakeJob("refused")
    kept = link.submit(old, Priority.WRITE_BACK)
    displaced = link.submit(young, Priority.WRITE_BACK)
    with pytest.raises(TransferRefusedError, match="full"):
        link.submit(refused, Priority.WRITE_BACK)
    assert refused.finished == [False], "what is refused is let go of as well"
    urgent = link.submit(FakeJob("urgent"), Priority.PREFETCH)
    assert displaced.outcome == "refused"
    assert young.finished == [False]
    blocker.let_go()
    assert urgent.wait(PATIENCE)
    assert kept.wait(PATIENCE)
    assert observer.record().transfers["test", "write_back", "refused"] == 2


def test_queued_bytes_are_those_not_begun_and_as_urgent(make_link: MakeLink) -> None:
    link = make_link()
    blocker = Blocker(link)
    transfers = [link.submit(FakeJob(pieces=2), priority) for priority in Priority]
    assert [link.queued_bytes(priority) for priority in Priority] == [20, 40, 60]
    blocker.let_go()
    assert all(transfer.wait(PATIENCE) for transfer in transfers)
    assert link.queued_bytes() == 0


def test_closing_ends_everything_and_later_work_is_refused(make_link: MakeLink) -> None:
    link, gate = make_link(), threading.Event()
    at_work, queued = FakeJob("a", gate=gate), FakeJob("q")
    transfers = [link.submit(job, Priority.WAITING) for job in (at_work, queued)]
    assert at_work.begun.wait(PATIENCE)
    assert not link.close(0.01), "a piece is at work"
    assert queued.finished == [False]
    assert at_work.finished == []
    gate.set()
    assert link.close(PATIENCE)
    assert at_work.finished == [False]
    assert [transfer.outcome for transfer in transfers] == ["cancelled", "cancelled"]
    late = FakeJob()
    with pytest.raises(TransferRefusedError, match="closed"):
        link.submit(late, Priority.WAITING)
    assert late.finished == [False]


class ManualPending:
    """A piece on an accelerator, done when the test says so."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.broken = False

    def wait(self) -> None:
        assert self.arrived.wait(PATIENCE)
        if self.broken:
            raise RuntimeError("the accelerator lost it")


def test_an_accelerator_gets_its_next_piece_before_the_last_one_has_arrived(make_link: MakeLink) -> None:
    pendings = [ManualPending() for _ in range(4)]
    job = FakeJob(pieces=4, make_pending=pendings.__getitem__)
    transfer = make_link(depth=2).submit(job, Priority.WAITING)
    for index, pending in enumerate(pendings):
        wait_until(lambda index=index: len(job.recorder.ran) == min(index + 2, 4), "the next one is sent")
        assert not transfer.wait_layer(index, 0.0)
        pending.arrived.set()
        assert transfer.wait_layer(index, PATIENCE)
    assert transfer.wait(PATIENCE)
    assert job.arrived == [0, 1, 2, 3]


def test_a_cancel_waits_for_all_that_the_accelerator_has(make_link: MakeLink) -> None:
    pendings = [ManualPending() for _ in range(4)]
    job = FakeJob(pieces=4, make_pending=pendings.__getitem__)
    transfer = make_link(depth=2).submit(job, Priority.WAITING)
    wait_until(lambda: len(job.recorder.ran) == 2, "both are at work")
    assert not transfer.cancel(0.01)
    pendings[0].arrived.set()
    assert not transfer.cancel(0.01)
    assert job.finished == []
    pendings[1].arrived.set()
    assert transfer.cancel(PATIENCE)
    assert (job.finished, len(job.recorder.ran)) == ([False], 2)


def test_what_the_accelerator_loses_fails_the_transfer_when_nothing_is_at_work(make_link: MakeLink) -> None:
    pendings = [ManualPending() for _ in range(4)]
    pendings[0].broken = True
    job = FakeJob(pieces=4, make_pending=pendings.__getitem__)
    transfer = make_link(depth=2).submit(job, Priority.WAITING)
    pendings[0].arrived.set()
    wait_until(lambda: transfer.error is not None, "it fails")
    assert job.finished == []
    pendings[1].arrived.set()
    assert not transfer.wait(PATIENCE)
    assert (transfer.outcome, job.finished) == ("failed", [False])


class ElsewherePiece(Leavable):
    """A piece on another thread, which ends when the test says so."""

    def __init__(self, clock: Clock, limit: float) -> None:
        self.began, self.limit, self.error = clock.now(), limit, None
        self.waited, self.left = threading.Event(), threading.Event()
        self._clock, self._changed = clock, threading.Condition()
        self._over = False
        self._then: Callable[[], None] | None = None

    def wait(self, until: float) -> bool:
        with self._changed:
            while not self._over and (left := until - self._clock.now()) > 0:
                self.waited.set()
                self._clock.wait(self._changed, left)
            return self._over

    def leave(self, then: Callable[[], None]) -> None:
        self._then = then
        self.left.set()

    def end(self, error: Exception | None = None) -> None:
        with self._changed:
            self._over, self.error = True, error
            self._changed.notify_all()
        if self._then is not None:
            self._then()


class LeftJob(FakeJob):
    """Knows whether it was told that a piece was left."""

    left = False

    def piece_left(self) -> None:
        self.left = True


def elsewhere(piece: ElsewherePiece, pieces: int = 2) -> LeftJob:
    return LeftJob(pieces=pieces, make_pending=lambda _: piece)  # type: ignore[arg-type, return-value]


def test_a_piece_on_another_thread_is_waited_for(make_link: MakeLink) -> None:
    clock = ManualClock()
    piece = ElsewherePiece(clock, 5.0)
    job = elsewhere(piece, 1)
    transfer = make_link(clock).submit(job, Priority.WAITING)
    assert piece.waited.wait(PATIENCE)
    assert not transfer.ended
    piece.end()
    wait_until(lambda: transfer.ended, "its end")
    assert transfer.done
    assert (job.finished, job.left) == ([True], False)


@pytest.mark.parametrize(("deadline", "after"), [(None, 5.0), (2.0, 2.0), (0.1, 0.5), (9.0, 5.0)])
def test_after_its_time_the_link_goes_on_without_a_piece_whose_job_is_finished_at_its_end(
    make_link: MakeLink, deadline: float | None, after: float
) -> None:
    clock = ManualClock()
    link, piece = make_link(clock), ElsewherePiece(clock, 5.0)
    job = elsewhere(piece)
    transfer = link.submit(job, Priority.WAITING, deadline)
    assert piece.waited.wait(PATIENCE)
    clock.advance(after - 0.05)
    assert not piece.left.is_set()
    clock.advance(0.05)
    assert piece.left.wait(PATIENCE)
    assert job.left
    assert link.submit(FakeJob(), Priority.WRITE_BACK).wait(PATIENCE), "others go on"
    assert job.finished == []
    assert link.queued_bytes() == 0, "what will not be moved is not waited for"
    piece.end()
    wait_until(lambda: transfer.ended, "its end")
    assert (transfer.outcome, job.finished, job.arrived) == ("expired", [False], [0])


def test_a_link_whose_piece_was_left_is_not_closed_before_its_end() -> None:
    clock = ManualClock()
    link, piece = Link("left", LinkConfig(), clock, NullObserver()), ElsewherePiece(clock, 5.0)
    job = elsewhere(piece)
    link.submit(job, Priority.WAITING)
    assert piece.waited.wait(PATIENCE)
    clock.advance(5.0)
    assert piece.left.wait(PATIENCE)
    assert not link.close(PATIENCE)
    assert job.finished == []
    piece.end(OSError("broken"))
    wait_until(lambda: job.finished == [False], "its end")
    assert link.close(PATIENCE)
