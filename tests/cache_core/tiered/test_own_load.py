"""Blocks that come up into a running request's own blocks: right bytes, seen by nobody early, never in the way."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cache_core.metrics import RecordingObserver
from cache_core.tiered import TieringOptions
from cache_core.tiered.watch import CallLimits
from cache_core.transfer import Priority, TransferRefusedError
from tests.cache_core.manual_clock import ManualClock
from tests.cache_core.tiered.faulty_files import FaultyFiles
from tests.cache_core.tiered.overlapped import Request, decides
from tests.cache_core.tiered.world import BLOCK, UNHURRIED, World, until, world
from tests.waiting import PATIENCE_S

N = 6
PROMPT = list(range(100, 100 + N * BLOCK + 1))
IDS = np.array(PROMPT, dtype=np.int32)
SLOW = TieringOptions(reserve_blocks=0, fetch_deadline=3600.0, patience=3600.0, limits=UNHURRIED)


def filled(folder: Path) -> None:
    """A disk that holds the prompt."""
    with world(folder) as it:
        warm(it)


def warm(it: World) -> None:
    it.run(PROMPT)
    it.run(PROMPT)
    it.settle()


def nothing_held(it: World) -> bool:
    stats = it.cache.stats()
    return not (stats.leases or stats.leased or stats.filling)


@contextmanager
def held_transfers(it: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """While inside, whatever goes to the device stops before its first byte; the event is set when something does."""
    write, go, reached = it.device.write_blocks, Event(), Event()

    def slowly(*args: Any, **keywords: Any) -> None:
        reached.set()
        go.wait(PATIENCE_S)
        write(*args, **keywords)

    monkeypatch.setattr(it.device, "write_blocks", slowly)
    try:
        yield reached
    finally:
        go.set()


@pytest.mark.parametrize("split", [0, 1, 3, 5])
def test_the_rear_comes_while_the_front_is_computed(split: int) -> None:
    with world() as it:
        warm(it)
        it.cache.flush()
        decides(it, 0, split)
        request = Request(it, IDS)
        request.admit()
        request.finish()
        assert (request.computed_blocks, request.came) == (split + 1, (N - split) * BLOCK)
        it.settle()
        assert nothing_held(it)
        assert it.run(PROMPT) == N * BLOCK


def test_nobody_finds_what_came_before_what_lies_before_it_is_ready() -> None:
    with world() as it:
        warm(it)
        it.cache.flush()
        decides(it, 0, 3)
        request = Request(it, IDS)
        request.admit()
        assert request.lease is not None
        until(lambda: _begun(request) and request.load is not None and request.load.there)
        assert it.cache.match(IDS) == 0
        assert request.step()
        assert it.cache.match(IDS) == BLOCK
        coming = it.cache.computing(IDS)
        assert coming is not None
        assert (
            coming.owner is request.lease
        )  # whoever needs it waits for the request, as for one that computes all
        request.finish()
        assert it.cache.match(IDS) == N * BLOCK


def _begun(request: Request) -> bool:
    assert request.load is not None
    assert request.lease is not None
    request.load.advance(request.lease, request.lease.ready)
    return request.load.start is not None


def test_where_computing_got_further_only_the_rest_is_loaded(tmp_path: Path) -> None:
    filled(tmp_path)
    files = FaultyFiles()
    with world(tmp_path, files=files, options=SLOW) as it:
        decides(it, 0, 2)
        files.hang_reads = True
        request = Request(it, IDS)
        request.admit()
        for _ in range(4):
            assert request.step()  # past the split, as nothing is there yet
        files.release.set()
        files.hang_reads = False
        until(lambda: _begun(request))
        request.finish()
        assert (request.computed_blocks, request.came) == (5, 2 * BLOCK)


def test_what_comes_too_late_is_not_loaded(tmp_path: Path) -> None:
    filled(tmp_path)
    files = FaultyFiles()
    with world(tmp_path, files=files, options=SLOW) as it:
        decides(it, 0, 2)
        files.hang_reads = True
        request = Request(it, IDS)
        request.admit()
        request.finish()
        assert (request.computed_blocks, request.came) == (N + 1, 0)
        files.release.set()
        it.settle()
        assert nothing_held(it)


def test_a_disk_that_hangs_holds_up_nobody_and_is_away(tmp_path: Path) -> None:
    filled(tmp_path)
    files, clock = FaultyFiles(), ManualClock()
    options = TieringOptions(reserve_blocks=0, fetch_deadline=1.0, limits=CallLimits(most_stuck=1))
    with world(tmp_path, files=files, options=options, clock=clock) as it:
        decides(it, 0, 2)
        files.hang_reads = True
        request = Request(it, IDS)
        request.admit()
        load = request.load
        assert load is not None
        assert files.hanging.wait(PATIENCE_S)
        clock.advance(1.0)
        until(lambda: load.over)
        request.finish()
        assert request.computed_blocks == N + 1
        it.cache.flush()
        until(lambda: it.tiers.watched["disk"].away("read"))
        assert it.tiers.prefetch(IDS) is None
        files.release.set()


def test_no_block_is_free_while_bytes_are_written_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(options=SLOW) as it:
        warm(it)
        it.cache.flush()
        decides(it, 0, 2)
        with held_transfers(it, monkeypatch) as reached:
            request = Request(it, IDS)
            request.admit()
            request.step()
            assert reached.wait(PATIENCE_S)
            request.leave()
            assert it.cache.stats().filling >= N - 2
            it.cache.check_integrity()
            assert it.cache.computing(IDS) is None  # nobody waits for it
        until(lambda: nothing_held(it))
        it.settle()


def test_who_leaves_between_two_pieces_has_left_when_it_returns() -> None:
    with world(options=SLOW) as it:
        warm(it)
        it.cache.flush()
        decides(it, 0, 0)
        request = Request(it, IDS)
        request.admit()
        request.step()
        request.leave()
        assert nothing_held(it)


@pytest.mark.parametrize("moment", ["asked", "answered", "admitted"])
def test_a_request_that_is_cancelled_leaves_nothing(tmp_path: Path, moment: str) -> None:
    filled(tmp_path)
    files = FaultyFiles()
    with world(tmp_path, files=files, options=SLOW) as it:
        decides(it, 0, 2)
        files.hang_reads = True
        request = Request(it, IDS)
        assert request.ask is not None
        if moment != "asked":
            assert files.hanging.wait(PATIENCE_S)
        if moment == "admitted":
            request.admit()
            request.step()
            request.leave()
        else:
            request.ask.cancel()
        until(lambda: nothing_held(it))
        files.release.set()
        it.settle()
        assert nothing_held(it)


def test_a_block_that_left_the_host_again_ends_what_comes(tmp_path: Path) -> None:
    filled(tmp_path)
    with world(tmp_path) as it:
        decides(it, 0, 2)
        headers = it.tiers._chains.headers("default", IDS)
        request = Request(it, IDS)
        until(lambda: request.ask is not None and not request.ask.waits)
        it.settle_links()
        it.tiers.host.delete([headers[4].key])
        request.admit()
        request.finish()
        assert (request.computed_blocks, request.came) == (3, 4 * BLOCK)


def test_what_lies_behind_a_block_that_cannot_be_read_comes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    with world(tmp_path) as it:
        decides(it, 0, 2)
        lost = it.tiers._chains.headers("default", IDS)[3]
        get = it.tiers.colder["disk"].get

        def holed(headers: Any, out: Any, timeout: float | None = None) -> Any:
            return get(headers, out, timeout) & np.array([header.key != lost.key for header in headers])

        monkeypatch.setattr(it.tiers.colder["disk"], "get", holed)
        request = Request(it, IDS)
        until(lambda: request.ask is not None and not request.ask.waits)
        it.settle_links()
        request.admit()
        request.finish()
        assert (request.computed_blocks, request.came) == (4 + 1, 2 * BLOCK)


def test_the_rear_that_has_come_is_enough_when_the_front_gets_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk gives the last two blocks, and hangs at those before them."""
    filled(tmp_path)
    monkeypatch.setattr("cache_core.tiered.own_load._LEAST_PIECE", 2)
    with world(tmp_path, options=SLOW) as it:
        decides(it, 0, 2)
        last = {header.key for header in it.tiers._chains.headers("default", IDS)[4:]}
        get, go = it.tiers.colder["disk"].get, Event()

        def hangs(headers: Any, out: Any, timeout: float | None = None) -> Any:
            if not {header.key for header in headers} <= last:
                go.wait(PATIENCE_S)
            return get(headers, out, timeout)

        monkeypatch.setattr(it.tiers.colder["disk"], "get", hangs)
        request = Request(it, IDS)
        request.admit()
        assert request.load is not None
        until(lambda: request.load is not None and request.load._climb.arrived() == 2)
        for _ in range(4):
            assert request.step()
        request.load.advance(request.lease, 4 * BLOCK)  # type: ignore[arg-type]
        go.set()
        until(lambda: _begun(request))
        request.finish()
        assert (request.computed_blocks, request.came) == (4 + 1, 2 * BLOCK)


def test_a_warm_front_is_waited_for_and_a_cold_rear_comes_meanwhile(tmp_path: Path) -> None:
    filled(tmp_path)
    with world(tmp_path) as it:
        assert it.fetch(PROMPT[: 2 * BLOCK + 1])
        it.cache.flush()
        decides(it, 2, 4)
        request = Request(it, IDS)
        request.admit()
        assert request.lease is not None
        assert request.lease.matched == 2 * BLOCK
        request.finish()
        it.settle()
        assert request.computed_blocks * BLOCK + request.came >= (N - 2) * BLOCK + 1
        assert nothing_held(it)


def test_a_purge_reaches_what_has_not_come_yet(tmp_path: Path) -> None:
    filled(tmp_path)
    with world(tmp_path) as it:
        decides(it, 0, 2)
        request = Request(it, IDS)
        until(lambda: request.ask is not None and not request.ask.waits)
        it.settle_links()
        it.tiers.purge("default")
        request.admit()
        request.finish()
        assert request.came == 0
        assert nothing_held(it)


@pytest.mark.parametrize("error", [TransferRefusedError("full"), RuntimeError("broken")])
@pytest.mark.parametrize("way", [("disk", "host"), ("host", "device")])
def test_a_way_that_refuses_or_breaks_costs_reuse_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: tuple[str, str], error: Exception
) -> None:
    filled(tmp_path)
    with world(tmp_path) as it:
        decides(it, 0, 2)
        submit = it.tiers._engine.submit

        def refuse(job: Any, priority: Priority, deadline: float | None = None) -> Any:
            if (job.source, job.target) != way:
                return submit(job, priority, deadline)
            job.finish(False)
            raise error

        monkeypatch.setattr(it.tiers._engine, "submit", refuse)
        request = Request(it, IDS)
        request.admit()
        request.finish()
        assert request.computed_blocks == N + 1
        it.settle()
        assert nothing_held(it)


def test_decisions_and_their_regret_are_told(tmp_path: Path) -> None:
    filled(tmp_path)
    seen = RecordingObserver()
    with world(tmp_path, observer=seen) as it:
        decides(it, 0, 2)
        request = Request(it, IDS)
        request.admit()
        request.finish()
        it.settle()
    record = seen.record()
    assert (record.decisions, record.decided_recompute) == (1, 2)
    assert record.decided_load == {"disk": 4}
    assert record.regret.count == 1


@pytest.mark.parametrize("admitted", [False, True])
def test_who_goes_away_regrets_nothing(tmp_path: Path, admitted: bool) -> None:
    filled(tmp_path)
    seen, files = RecordingObserver(), FaultyFiles()
    with world(tmp_path, observer=seen, files=files, options=SLOW) as it:
        decides(it, 0, 2)
        files.hang_reads = True
        request = Request(it, IDS)
        assert request.ask is not None
        until(lambda: request.ask is not None and request.ask.answer is not None)
        if admitted:
            request.admit()
            request.leave()
        else:
            request.ask.cancel()
        files.release.set()
        it.settle()
    assert seen.record().decisions == 1
    assert seen.record().regret.count == 0


def test_a_request_that_is_not_alone_takes_a_fetch(tmp_path: Path) -> None:
    filled(tmp_path)
    with world(tmp_path) as it:
        decides(it, 0, 2)
        ask = it.tiers.ask(IDS)
        assert ask is not None
        until(lambda: not ask.waits)
        assert ask.take_load() is None


def test_layer_by_layer_all_of_it_comes_into_the_requests_own_blocks() -> None:
    with world(options=TieringOptions(reserve_blocks=0, layered=True)) as it:
        warm(it)
        it.cache.flush()
        request = Request(it, IDS)
        request.admit()
        assert request.load is not None
        assert request.load.layered
        request.step()
        assert [request.load.wait_layer(layer) for layer in range(3)] == [True] * 3
        assert request.load.wait()
        assert request.load.there
        request.finish()
        assert (request.computed_blocks, request.came) == (1, N * BLOCK)
        assert it.run(PROMPT) == N * BLOCK


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    front=st.integers(0, N),
    split=st.integers(0, N),
    on_device=st.integers(0, N),
    in_host=st.integers(0, N),
    lost=st.integers(0, N),
    steps=st.integers(0, 4),
    leaves=st.booleans(),
)
def test_whatever_is_where_bytes_are_right_and_nothing_is_left_behind(
    front: int, split: int, on_device: int, in_host: int, lost: int, steps: int, leaves: bool
) -> None:
    with world() as it:
        warm(it)
        it.cache.evict(N - on_device)
        headers = it.tiers._chains.headers("default", IDS)
        decides(it, min(front, split), split)
        it.tiers.host.delete([header.key for header in headers[in_host:]])
        request = Request(it, IDS)
        if lost < N:
            it.tiers.host.delete([headers[lost].key])
        request.admit()
        it.cache.check_integrity()
        for _ in range(steps):
            request.step()
            it.cache.check_integrity()
        if leaves:
            request.leave()
        else:
            request.finish()
        it.settle()
        assert nothing_held(it)
        it.run(PROMPT)


def test_a_load_that_is_given_up_as_it_begins_writes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    with world() as it:
        warm(it)
        it.cache.flush()
        decides(it, 0, 0)
        request = Request(it, IDS)
        request.admit()
        load, submit = request.load, it.tiers._engine.submit
        assert load is not None

        def late(*args: Any) -> Any:
            assert load.give_up()
            return submit(*args)

        until(lambda: load._climb.arrived() == N)
        with held_transfers(it, monkeypatch), monkeypatch.context() as patch:
            patch.setattr(it.tiers._engine, "submit", late)
            until(lambda: _begun(request))
        until(lambda: load.over)
        request.finish()
        assert (request.computed_blocks, request.came) == (N + 1, 0)
        it.settle()
        assert nothing_held(it)
