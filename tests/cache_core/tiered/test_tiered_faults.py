"""What goes wrong below the device costs reuse: nobody waits in vain, nothing stays pinned, nothing wrong comes up."""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from cache_core.tiered import TieringOptions
from cache_core.tiered.fetch import Fetch
from cache_core.tiered.watch import CallLimits
from cache_core.tiered.ways import Ways
from cache_core.tiers.base import Mask, Tier
from cache_core.tiers.errors import PurgeFailedError
from cache_core.tiers.host import HostTier
from cache_core.transfer import Priority, TransferRefusedError
from tests.cache_core.manual_clock import ManualClock
from tests.cache_core.tiered.faulty_files import FaultyFiles
from tests.cache_core.tiered.world import BLOCK, LAYERS, LAYOUT, World, until, world
from tests.waiting import PATIENCE_S

PROMPT = list(range(100, 100 + 5 * BLOCK + 1))
IDS = np.array(PROMPT, dtype=np.int32)
QUICK = TieringOptions(reserve_blocks=0, fetch_deadline=1.0)
ONE_MAY_HANG = TieringOptions(reserve_blocks=0, fetch_deadline=1.0, limits=CallLimits(most_stuck=1))


def warm(it: World, prompt: list[int] = PROMPT) -> None:
    it.run(prompt)
    it.run(prompt)
    it.settle()


def filled(folder: Path) -> None:
    """A disk that holds the prompt."""
    with world(folder) as it:
        warm(it)


def nothing_held(it: World) -> bool:
    stats = it.cache.stats()
    return not (stats.leases or stats.leased or stats.filling)


def test_who_waits_for_a_disk_that_hangs_goes_on_at_the_deadline(tmp_path: Path) -> None:
    filled(tmp_path)
    files, woken, clock = FaultyFiles(), Event(), ManualClock()
    with world(tmp_path, files=files, options=QUICK, on_ready=woken.set, clock=clock) as it:
        files.hang_reads = True
        fetch = it.tiers.prefetch(IDS)
        assert fetch is not None
        waits = it.cache.computing(IDS)
        assert waits is not None
        assert files.hanging.wait(PATIENCE_S)
        assert waits.pending
        clock.advance(1.0)
        until(lambda: not waits.pending)  # while the disk still hangs
        assert woken.wait(PATIENCE_S)
        assert not files.release.is_set()
        until(lambda: nothing_held(it))
        assert it.run(PROMPT) == 0
        files.release.set()
        it.settle()
        it.check(it.cache.acquire(IDS), "default")


def test_a_disk_that_is_away_is_not_asked_by_the_next_request(tmp_path: Path) -> None:
    filled(tmp_path)
    files, clock = FaultyFiles(), ManualClock()
    with world(tmp_path, files=files, options=ONE_MAY_HANG, clock=clock) as it:
        files.hang_reads = True
        assert it.tiers.prefetch(IDS) is not None
        assert files.hanging.wait(PATIENCE_S)
        clock.advance(1.0)
        until(lambda: nothing_held(it))
        until(lambda: it.tiers.watched["disk"].away("read"))
        assert it.tiers.prefetch(IDS) is None
        files.release.set()


def test_nobody_waits_much_longer_than_recomputing_takes(tmp_path: Path) -> None:
    filled(tmp_path)
    files, clock = FaultyFiles(), ManualClock()
    options = TieringOptions(reserve_blocks=0, fetch_deadline=3600.0, patience=0.05)
    with world(tmp_path, files=files, options=options, clock=clock) as it:
        for _ in range(200):
            it.tiers.computed([(0, 1000)], 10.0)
        files.hang_reads = True
        assert it.tiers.prefetch(IDS) is not None
        assert files.hanging.wait(PATIENCE_S)
        clock.advance(0.3)  # 20 tokens of 10 ms, patience, and a little
        until(lambda: nothing_held(it))
        assert not files.release.is_set()
        files.release.set()


def test_a_disk_whose_reads_have_returned_is_asked_again(tmp_path: Path) -> None:
    filled(tmp_path)
    files, clock = FaultyFiles(), ManualClock()
    with world(tmp_path, files=files, options=ONE_MAY_HANG, clock=clock) as it:
        files.hang_reads = True
        assert it.tiers.prefetch(IDS) is not None
        assert files.hanging.wait(PATIENCE_S)
        clock.advance(1.0)
        until(lambda: it.tiers.watched["disk"].away("read"))
        assert not it.tiers.prefetch(IDS)
        files.hang_reads = False
        files.release.set()
        it.settle()
        it.tiers.flush({"host"})  # where what hung has arrived
        assert it.fetch(PROMPT)
        assert it.run(PROMPT) == 5 * BLOCK


def test_closing_while_the_disk_hangs_ends_and_lets_go_of_every_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    monkeypatch.setattr("cache_core.tiered.tiered_cache._CLOSING", 0.05)
    files = FaultyFiles()
    with world(tmp_path, files=files) as it:
        files.hang_reads = True
        assert it.tiers.prefetch(IDS) is not None
        assert files.hanging.wait(PATIENCE_S)
    assert nothing_held(it)
    files.release.set()


def test_a_disk_whose_writes_hang_holds_up_neither_requests_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cache_core.tiered.tiered_cache._CLOSING", 0.05)
    files = FaultyFiles()
    with world(tmp_path, files=files) as it:
        files.hang_writes = True
        it.run(PROMPT)
        it.run(PROMPT)
        assert files.hanging.wait(PATIENCE_S)
        it.cache.flush()
        assert it.tiers.prefetch(IDS) is not None
        until(lambda: it.cache.match(IDS) == 5 * BLOCK)  # from the host
    files.release.set()


class SilentTier(HostTier):
    """Does not even say what it has, from the first time it is asked until it is let go."""

    def __init__(self) -> None:
        row = LAYERS * BLOCK * LAYOUT.width * 4
        super().__init__(64 * row, row, BLOCK)
        self.asked, self.release = Event(), Event()

    def contains(self, keys: Sequence[bytes]) -> Mask:
        self.asked.set()
        assert self.release.wait(PATIENCE_S)
        return super().contains(keys)


def test_while_one_tier_is_silent_the_others_get_their_copies(tmp_path: Path) -> None:
    silent = SilentTier()
    with world(tmp_path, shared=silent, blocks=32) as it:
        try:
            prompts = [list(range(first, first + 5 * BLOCK + 1)) for first in (100, 1000, 2000)]
            for number, prompt in enumerate(prompts, start=1):
                it.run(prompt)
                it.run(prompt)
                until(lambda blocks=5 * number: it.tiers.colder["disk"].stats().blocks == blocks)  # type: ignore[misc]
                assert it.tiers.host.stats().blocks == 5 * number
            assert silent.asked.wait(PATIENCE_S)
            assert not it.tiers.idle
        finally:
            silent.release.set()
        it.settle()
        assert silent.stats().blocks == 15, "and it, too, once it answers"


def test_a_disk_that_fails_is_a_miss(tmp_path: Path) -> None:
    filled(tmp_path)
    files = FaultyFiles()
    with world(tmp_path, files=files) as it:
        files.fail_reads = True
        assert it.fetch(PROMPT)
        assert nothing_held(it)
        assert it.run(PROMPT) == 0


def test_what_a_full_disk_refused_is_written_at_its_next_use(tmp_path: Path) -> None:
    files = FaultyFiles()
    with world(tmp_path, files=files) as it:
        files.full = True
        warm(it)
        assert it.tiers.stats()["disk"].blocks == 0
        files.full = False
        it.run(PROMPT)
        it.settle()
        assert it.tiers.stats()["disk"].blocks == 5
    with world(tmp_path) as after:
        assert after.fetch(PROMPT)
        assert after.run(PROMPT) == 5 * BLOCK


@pytest.mark.parametrize("way", [("disk", "host"), ("host", "device"), ("device", "host"), ("host", "disk")])
@pytest.mark.parametrize("error", [TransferRefusedError("full"), RuntimeError("broken")])
def test_a_way_that_refuses_or_breaks_leaves_nothing_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: tuple[str, str], error: Exception
) -> None:
    filled(tmp_path)
    with world(tmp_path) as it:
        submit = it.tiers._engine.submit

        def refuse(job: Any, priority: Priority, deadline: float | None = None) -> Any:
            if (job.source, job.target) != way:
                return submit(job, priority, deadline)
            job.finish(False)  # as a link does whatever it raises
            raise error

        monkeypatch.setattr(it.tiers._engine, "submit", refuse)
        it.fetch(PROMPT)
        it.run(PROMPT)
        it.run([7, *PROMPT])
        it.run([7, *PROMPT])
        it.settle()
        assert nothing_held(it)
        assert it.tiers.idle


def test_a_job_that_cannot_be_made_leaves_nothing_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    with world(tmp_path) as it:
        monkeypatch.setattr(it.tiers.host, "reserve", _raises)
        it.fetch(PROMPT)
        it.run(PROMPT)
        it.run(PROMPT)
        it.settle()
        assert nothing_held(it)


@pytest.mark.parametrize("lane", ["up", "down"])
def test_a_device_that_takes_no_copies_leaves_no_row_of_the_host_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    filled(tmp_path)
    with world(tmp_path) as it:
        monkeypatch.setattr(getattr(it.tiers._ways, lane), "after_now", _raises)
        it.fetch(PROMPT)
        it.run(PROMPT)
        it.run(PROMPT)
        it.settle()
        assert nothing_held(it)
        held = it.tiers.host.stats().blocks
        assert held is not None
        assert it.tiers.host.delete([h.key for h in it.tiers._chains.headers("default", IDS)]) == held
        it.tiers.host.check_integrity()
        assert it.tiers.host._pool is not None
        assert it.tiers.host._pool.free_count == it.tiers.host.num_blocks


def test_blocks_that_cannot_be_copied_are_evicted_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with world(blocks=6, options=TieringOptions(write_policy="write_back", reserve_blocks=0)) as it:
        it.run(PROMPT)
        monkeypatch.setattr(it.tiers.host, "reserve", _raises)
        for first in range(3):
            assert it.run([first, *PROMPT[1:]]) == 0
        assert nothing_held(it)


def test_a_copy_that_breaks_half_way_leaves_no_block_in_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with world(blocks=6, options=TieringOptions(write_policy="write_back", reserve_blocks=0)) as it:
        it.run(PROMPT)
        monkeypatch.setattr(it.device, "read_blocks", _raises)
        it.run([1, *PROMPT[1:]])
        it.settle()
        assert it.tiers.host.stats().blocks == 0


def test_where_the_machine_refuses_memory_for_the_host_nothing_moves(tmp_path: Path) -> None:
    filled(tmp_path)
    with world(tmp_path, host_blocks=0) as it:
        assert it.tiers.host.refusal is not None
        assert it.tiers.prefetch(IDS) is None
        warm(it)
        assert it.tiers.demote(5) == 0
        assert it.run(PROMPT) == 5 * BLOCK


def test_what_comes_from_disk_does_not_push_out_its_own_parents(tmp_path: Path) -> None:
    """The host has room for five blocks: three parents that it holds, and a piece of the three that the disk has."""
    long = list(range(100, 100 + 6 * BLOCK + 1))
    with world(tmp_path) as it:
        warm(it, long)
    with world(tmp_path, host_blocks=5) as it:
        assert it.fetch(long[: 3 * BLOCK + 1])
        it.cache.flush()
        other = [7] * (2 * BLOCK + 1)
        it.run(other)
        it.run(other)  # used after them
        it.settle()
        assert it.fetch(long)
        assert it.run(long) == 6 * BLOCK


def test_a_fetch_of_blocks_that_went_meanwhile_ends_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the lease, what was ready on the device is evicted."""
    with world() as it:
        warm(it)
        it.cache.evict(2)
        contains = it.tiers.host.contains

        def evict_first(keys: Any) -> Any:
            it.cache.flush()
            return contains(keys)

        monkeypatch.setattr(it.tiers.host, "contains", evict_first)
        assert it.tiers.prefetch(IDS) is None
        assert nothing_held(it)


def test_backups_and_fetches_are_no_requests_in_the_statistics() -> None:
    with world() as it:
        warm(it)
        it.cache.flush()
        before = it.cache.stats().acquires
        assert it.fetch(PROMPT)
        assert it.cache.stats().acquires == before == 2


def test_a_backup_lets_nobody_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of what is to be copied was evicted: whoever needs that half computes it at once."""
    with world() as it:
        it.run(PROMPT)
        go, held = Event(), Event()
        submit = it.tiers._engine.submit

        def slowly(job: Any, priority: Priority, deadline: float | None = None) -> Any:
            held.set()
            go.wait(PATIENCE_S)
            return submit(job, priority, deadline)

        monkeypatch.setattr(it.tiers._engine, "submit", slowly)
        it.cache.evict(2)
        it.tiers.used(IDS[: 5 * BLOCK])
        assert held.wait(PATIENCE_S)
        assert it.cache.computing(IDS) is None
        go.set()
        it.settle()
        assert it.tiers.host.stats().blocks == 3


# Purges while things move.


def test_a_purge_holds_for_what_waits_to_be_written_to_disk(tmp_path: Path) -> None:
    files = FaultyFiles()
    with world(tmp_path, files=files) as it:
        it.run(PROMPT, "busy")
        files.hang_writes = True
        it.run(PROMPT, "busy")
        assert files.hanging.wait(PATIENCE_S)  # the way to disk is taken
        it.run(PROMPT)
        it.run(PROMPT)
        until(lambda: it.tiers._engine.queued_bytes("host", "disk") >= 5 * it.device.bytes_per_block)
        until(lambda: it.tiers._backup.idle)
        purge_in_background(it, files)
        it.settle()
        assert it.tiers.prefetch(IDS) is None
    with world(tmp_path) as after:
        assert not after.fetch(PROMPT)
        assert after.fetch(PROMPT, "busy")


def purge_in_background(it: World, files: FaultyFiles) -> None:
    """A purge that begins while the disk hangs, and ends after that."""
    purge = Thread(target=it.tiers.purge, args=("default",))
    purge.start()
    digest = it.tiers._chains.digest("default")
    until(lambda: it.tiers._purges.number(digest) is None or not purge.is_alive())
    files.hang_reads = files.hang_writes = False
    files.release.set()
    purge.join(PATIENCE_S)
    assert not purge.is_alive()


@pytest.mark.parametrize("moment", ["device", "disk", "host"])
def test_while_a_purge_goes_on_nothing_of_its_scope_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """After each step of it, a request comes that would find what the later steps have not forgotten yet."""
    with world(tmp_path) as it:
        warm(it)
        it.cache.flush()
        asked: list[object] = []

        def meanwhile(*_: object) -> None:
            asked.append(it.tiers.prefetch(IDS))
            it.tiers.used(IDS[: 5 * BLOCK])

        owner: object = {"device": it.cache, "disk": it.tiers.colder["disk"], "host": it.tiers.host}[moment]
        _after(monkeypatch, owner, "purge", meanwhile)
        it.tiers.purge("default")
        it.settle()
        assert set(asked) == {None}
        assert not it.fetch(PROMPT)


def test_a_tier_that_cannot_purge_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path) as it:
        warm(it)
        disk: Tier = it.tiers.colder["disk"]

        def fails(_: bytes) -> int:
            raise PurgeFailedError("broken")

        monkeypatch.setattr(disk, "purge", fails)
        with pytest.raises(PurgeFailedError):
            it.tiers.purge("default")
        assert it.tiers.host.stats().blocks == 0
        assert it.cache.match(IDS) == 0


def test_a_fetch_that_began_before_a_purge_brings_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    files = FaultyFiles()
    with world(tmp_path, files=files) as it:
        files.hang_reads = True
        assert it.tiers.prefetch(IDS) is not None
        assert files.hanging.wait(PATIENCE_S)
        purge_in_background(it, files)
        it.settle()
        assert it.cache.match(IDS) == 0
        assert it.tiers.host.stats().blocks == 0
        assert nothing_held(it)


def _raises(*_: object, **__: object) -> Any:
    raise RuntimeError("broken")


def _after(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, then: Callable[..., None]) -> None:
    original = getattr(owner, name)

    def both(*args: Any) -> Any:
        result = original(*args)
        then(*args)
        return result

    monkeypatch.setattr(owner, name, both)


def test_host_tiers_of_no_block_are_off() -> None:
    assert HostTier(0, 64, BLOCK).refusal is not None


def test_a_fetch_in_pieces_that_is_given_up_between_two_begins_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    files = FaultyFiles()
    go_on, calls = Fetch._climb_next, list[Fetch]()

    def given_up(fetch: Fetch, ways: Ways) -> None:
        calls.append(fetch)
        if len(calls) == 2:
            files.hang_reads = True
            assert fetch.give_up()
        go_on(fetch, ways)

    monkeypatch.setattr(Fetch, "_climb_next", given_up)
    with world(tmp_path, files=files, host_blocks=4) as it:
        assert it.tiers.prefetch(IDS) is not None
        until(lambda: len(calls) == 2 and nothing_held(it))
        assert not files.hanging.is_set()
        files.release.set()
