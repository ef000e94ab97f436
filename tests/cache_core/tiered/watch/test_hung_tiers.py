"""Real disks and folders of which reads and writes hang: the rest goes on, and what hangs too much is left alone."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from cache_core.drop_reason import DropReason
from cache_core.metrics import CacheRecord, RecordingObserver
from cache_core.tiered import Sweeper, TieringOptions, Watermarks
from cache_core.tiered.watch import CallLimits
from tests.cache_core.manual_clock import ManualClock
from tests.cache_core.tiered.faulty_files import FaultyFiles
from tests.cache_core.tiered.test_tiered_faults import SilentTier
from tests.cache_core.tiered.world import BLOCK, World, until, world
from tests.waiting import PATIENCE_S

BLOCKS = 5
PROMPTS = [list(range(first, first + BLOCKS * BLOCK + 1)) for first in range(100, 1000, 100)]
DEADLINE = 1.0
LIMITS = CallLimits(most_stuck=2)
OPTIONS = TieringOptions(reserve_blocks=0, fetch_deadline=DEADLINE, limits=LIMITS)


class Hanging:
    """A world over a disk, or a shared folder, that has the first prompts; time stands still in it."""

    def __init__(
        self, it: World, name: str, files: FaultyFiles, clock: ManualClock, observer: RecordingObserver
    ) -> None:
        self.observer = observer
        self.it, self.files, self.clock, self.name = it, files, clock, name
        self.tier = it.tiers.watched[name]  # type: ignore[index]

    def fetch(self, prompt: list[int]) -> bool:
        """Bring it up; whether it came. Whatever hangs may go on hanging."""
        fetch = self.it.tiers.prefetch(np.array(prompt, dtype=np.int32))
        if fetch is not None:
            until(lambda: fetch.done)
        return self.there(prompt)

    def there(self, prompt: list[int]) -> bool:
        return self.it.cache.match(np.array(prompt, dtype=np.int32)) == BLOCKS * BLOCK

    def hang(self, prompt: list[int]) -> None:
        """One read of it hangs until its deadline and then on."""
        hung, late = self.files.hung, self.late("read")
        reads = self.files.reads + (1 if self.name == "disk" else BLOCKS)  # of which it is one
        self.files.hang_next_reads = 1
        fetch = self.it.tiers.prefetch(np.array(prompt, dtype=np.int32))
        assert fetch is not None
        until(lambda: self.files.hung > hung and self.files.reads >= reads)
        self.clock.advance(DEADLINE)
        until(lambda: fetch.done)
        until(lambda: self.late("read") > late)

    def late(self, kind: str) -> int:
        """How many calls were left alone."""
        return dict(self.observed().late_calls).get((self.name, kind), 0)  # type: ignore[call-overload]

    def observed(self) -> CacheRecord:
        return self.observer.record()

    def advanced(self, seconds: float, condition: Callable[[], bool]) -> bool:
        """That much later."""
        self.clock.advance(seconds)
        return condition()

    def end(self) -> None:
        """Nothing hangs any more, and everything is in one place."""
        self.files.hang_reads = self.files.hang_writes = False
        self.files.release.set()
        until(lambda: not self.files.hung)
        self.it.settle()


@contextmanager
def hanging(folder: Path, name: str = "disk", options: TieringOptions = OPTIONS) -> Iterator[Hanging]:
    places = {"folder": folder} if name == "disk" else {"store": folder}
    with world(**places, blocks=64) as before:  # type: ignore[arg-type]
        for prompt in PROMPTS[:6]:
            before.run(prompt)
            before.run(prompt)
        before.settle()
    files, clock, observer = FaultyFiles(), ManualClock(), RecordingObserver()
    faulty = {"files": files} if name == "disk" else {"store_files": files}
    with world(**places, **faulty, blocks=64, options=options, clock=clock, observer=observer) as it:  # type: ignore[arg-type]
        try:
            yield Hanging(it, name, files, clock, observer)
        finally:
            files.release.set()


kinds = pytest.mark.parametrize("name", ["disk", "store"])


@kinds
def test_behind_a_read_that_hangs_others_are_served(tmp_path: Path, name: str) -> None:
    with hanging(tmp_path, name) as tiers:
        tiers.hang(PROMPTS[0])
        assert tiers.files.hung == 1
        assert tiers.fetch(PROMPTS[1])
        assert tiers.fetch(PROMPTS[2])
        assert tiers.files.hung == 1
        assert not tiers.tier.away("read")
        tiers.end()
        for prompt in PROMPTS[:3]:
            tiers.it.check(tiers.it.cache.acquire(np.array(prompt, dtype=np.int32)), "default")


@kinds
def test_who_has_all_the_time_there_is_does_not_wait_for_a_read_that_was_left(
    tmp_path: Path, name: str
) -> None:
    options = TieringOptions(reserve_blocks=0, fetch_deadline=3600.0, patience=3600.0, limits=LIMITS)
    with hanging(tmp_path, name, options) as tiers:
        tiers.files.hang_next_reads = 1
        fetch = tiers.it.tiers.prefetch(np.array(PROMPTS[0], dtype=np.int32))
        assert fetch is not None
        until(lambda: tiers.files.hung == 1)
        assert not fetch.done
        tiers.clock.advance(LIMITS.read)
        until(lambda: fetch.done)
        assert tiers.files.hung == 1
        tiers.end()


@kinds
def test_the_rows_of_a_read_that_hangs_stay_its_own_and_its_blocks_come_another_way(
    tmp_path: Path, name: str
) -> None:
    with hanging(tmp_path, name) as tiers:
        host = tiers.it.tiers.host
        tiers.hang(PROMPTS[0])
        assert host._pool is not None
        held = host.num_blocks - host._pool.free_count
        assert held == BLOCKS, "what hangs may still write there"
        assert tiers.fetch(PROMPTS[0])
        assert host.num_blocks - host._pool.free_count == 2 * BLOCKS
        host.check_integrity()
        tiers.end()
        assert host.num_blocks - host._pool.free_count == BLOCKS
        assert tiers.it.run(PROMPTS[0]) == BLOCKS * BLOCK


@kinds
def test_with_too_many_reads_that_hang_the_tier_is_away_until_one_returns(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with hanging(tmp_path, name) as tiers, caplog.at_level(logging.WARNING):
        tiers.hang(PROMPTS[0])
        tiers.hang(PROMPTS[1])
        assert tiers.tier.away("read")
        assert tiers.tier.away("write"), "where nothing can be read, nothing is written"
        until(lambda: f"the {name} tier does not answer: 2 calls" in caplog.text)
        reads = tiers.files.reads
        assert tiers.it.tiers.prefetch(np.array(PROMPTS[2], dtype=np.int32)) is None
        assert tiers.files.reads == reads
        until(lambda: len(tiers.observed().away) == 2)
        seen = tiers.observed()
        assert seen.late_calls == {(name, "read"): 2}
        assert seen.away == {(name, "read"): True, (name, "write"): True}
        assert seen.drops[name, DropReason.SLOW] == 2 * BLOCKS
        tiers.end()
        until(lambda: not tiers.tier.away("read"))
        until(lambda: tiers.observed().away == {(name, "read"): False, (name, "write"): False})
        until(lambda: f"the {name} tier answers again" in caplog.text)
        assert tiers.fetch(PROMPTS[2])


@kinds
def test_a_tier_whose_reads_never_return_is_back_when_a_look_at_it_succeeds(
    tmp_path: Path, name: str
) -> None:
    with hanging(tmp_path, name) as tiers:
        tiers.files.hang_writes = True  # so that the look hangs, too, and nothing else
        tiers.hang(PROMPTS[0])
        tiers.hang(PROMPTS[1])
        assert tiers.tier.away("read")

        def looked() -> bool:
            tiers.clock.advance(LIMITS.probe_every)
            return tiers.files.hung == 3

        until(looked)
        assert tiers.tier.away("read")
        tiers.files.let_go_of_writes()
        until(lambda: not tiers.tier.away("read"))
        assert tiers.files.hung == 2, "those that hung before"
        assert tiers.fetch(PROMPTS[2])
        tiers.hang(PROMPTS[3])
        assert not tiers.tier.away("read"), "what hung before it was back does not count"
        tiers.end()


def test_a_look_that_fails_leaves_the_tier_away(tmp_path: Path) -> None:
    with hanging(tmp_path) as tiers:
        tiers.hang(PROMPTS[0])
        tiers.hang(PROMPTS[1])
        tiers.files.full = True
        writes = tiers.files.writes

        def looked_twice() -> bool:
            tiers.clock.advance(LIMITS.probe_every)
            return tiers.files.writes >= writes + 2

        until(looked_twice)
        assert tiers.tier.away("read")
        tiers.files.full = False

        def back() -> bool:
            tiers.clock.advance(LIMITS.probe_every)
            return not tiers.tier.away("read")

        until(back)
        tiers.end()


@kinds
def test_a_tier_that_takes_no_writes_is_read_all_the_same_and_gets_them_later(
    tmp_path: Path, name: str
) -> None:
    with hanging(tmp_path, name) as tiers:
        tiers.files.hang_writes = True
        for number, prompt in enumerate(PROMPTS[6:8], start=1):
            tiers.it.run(prompt)
            tiers.it.run(prompt)
            until(lambda number=number: tiers.files.hung >= number or tiers.late("write") >= number)  # type: ignore[misc]
            until(lambda number=number: tiers.advanced(LIMITS.write, lambda: tiers.late("write") >= number))  # type: ignore[misc]
        assert tiers.tier.away("write")
        assert not tiers.tier.away("read")
        assert tiers.fetch(PROMPTS[0])
        last = PROMPTS[8]
        tiers.it.run(last)
        tiers.it.run(last)
        until(lambda: tiers.it.tiers._backup.idle)
        assert tiers.it.tiers._engine.queued_bytes("host", name) == 0, "nothing piles up"  # type: ignore[arg-type]
        tiers.end()
        until(lambda: not tiers.tier.away("write"))
        for prompt in PROMPTS[6:]:
            tiers.it.run(prompt)
            tiers.it.settle()
            headers = tiers.it.tiers._chains.headers("default", np.array(prompt[:-1], dtype=np.int32))
            assert tiers.tier.tier.contains([header.key for header in headers]).all()


@kinds
def test_the_end_comes_while_calls_hang(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with hanging(tmp_path, name) as tiers:
        monkeypatch.setattr("cache_core.tiered.tiered_cache._CLOSING", 0.05)
        tiers.hang(PROMPTS[0])
        tiers.hang(PROMPTS[1])
        tiers.it.tiers.close()
        assert tiers.files.hung == 2
        stats = tiers.it.cache.stats()
        assert (stats.leases, stats.leased, stats.filling) == (0, 0, 0)


def test_while_a_store_is_silent_who_asks_gets_what_the_disk_has(tmp_path: Path) -> None:
    silent, clock = SilentTier(), ManualClock()
    with world(tmp_path) as before:
        before.run(PROMPTS[0])
        before.run(PROMPTS[0])
        before.settle()
    with world(tmp_path, shared=silent, options=OPTIONS, clock=clock) as it:
        try:
            longer = np.array([*PROMPTS[0], *range(BLOCK)], dtype=np.int32)  # of which nobody has the end
            ask = it.tiers.ask(longer)
            assert ask is not None
            assert silent.asked.wait(PATIENCE_S)
            assert ask.answer is None
            clock.advance(0.6 * DEADLINE)
            until(lambda: it.cache.match(longer) == BLOCKS * BLOCK)
            assert not ask.late
            assert not silent.release.is_set()
        finally:
            silent.release.set()


def test_while_a_store_is_silent_the_sweeper_sweeps_the_other_tiers(tmp_path: Path) -> None:
    silent, clock = SilentTier(), ManualClock()
    with world(tmp_path, shared=silent, options=OPTIONS, clock=clock, host_blocks=10, blocks=32) as it:
        for prompt in PROMPTS[:2]:
            it.run(prompt)
            it.run(prompt)
        until(lambda: it.tiers.colder["disk"].stats().blocks == 2 * BLOCKS)
        assert silent.asked.wait(PATIENCE_S)
        sweeper = Sweeper(it.tiers, lambda: False, Watermarks(0.5, 0.3), pause=0.01, batch=4)
        try:

            def swept() -> bool:
                clock.advance(LIMITS.ask)
                return (it.tiers.host.stats().blocks or 0) <= BLOCKS

            until(swept)  # what the disk has, too; at most one prefix is being copied to the store, for ever
            assert it.tiers.watched["store"].away("read")
            assert it.tiers.colder["disk"].stats().blocks == 2 * BLOCKS
        finally:
            silent.release.set()
            sweeper.close()
        it.settle()


def test_cleaning_that_gives_no_sign_is_left_alone_and_the_other_tiers_are_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, began, go = ManualClock(), Event(), Event()
    cleaned: list[str] = []
    with world(tmp_path, store=tmp_path / "store", options=OPTIONS, clock=clock) as it:
        goes_on: list[bool] = []

        def hangs(ask: Callable[[], bool], *_: object) -> int:
            began.set()
            go.wait(PATIENCE_S)
            goes_on.append(ask())
            return 0

        monkeypatch.setattr(it.tiers.colder["disk"], "clean", hangs)
        monkeypatch.setattr(it.tiers.colder["store"], "clean", lambda *_: cleaned.append("store") or 0)
        sweeper = Sweeper(it.tiers, lambda: False, pause=0.01)
        try:
            assert began.wait(PATIENCE_S)
            assert not cleaned
            until(lambda: _advanced(clock, LIMITS.clean, lambda: bool(cleaned)))
            began.clear()
            until(lambda: len(cleaned) > 2)
            assert not began.is_set(), "one that has not ended is not begun again"
            go.set()
            until(lambda: bool(goes_on))
            assert goes_on == [False], "it is over when it comes back"
        finally:
            go.set()
            sweeper.close()


def _advanced(clock: ManualClock, seconds: float, condition: Callable[[], bool]) -> bool:
    clock.advance(seconds)
    return condition()
