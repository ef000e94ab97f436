"""Tiers are asked on a thread of their own: who waits is told, and nothing comes up for who does not any more."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from cache_core.tiered import Ask, TieringOptions
from cache_core.tiered.watch import CallLimits
from cache_core.tiers.base import Mask
from cache_core.transfer import Priority
from tests.cache_core.manual_clock import ManualClock
from tests.cache_core.tiered.faulty_files import FaultyFiles
from tests.cache_core.tiered.world import BLOCK, UNHURRIED, World, until, world
from tests.waiting import PATIENCE_S

PROMPT = list(range(100, 100 + 5 * BLOCK + 1))
IDS = np.array(PROMPT, dtype=np.int32)
SLOW = TieringOptions(reserve_blocks=0, fetch_deadline=3600.0, patience=3600.0, limits=UNHURRIED)


def filled(folder: Path) -> None:
    """A disk that holds the prompt."""
    with world(folder) as it:
        it.run(PROMPT)
        it.run(PROMPT)
        it.settle()


def asked(it: World, ids: np.ndarray = IDS) -> Ask:  # type: ignore[type-arg]
    ask = it.tiers.ask(ids)
    assert ask is not None
    return ask


def nothing_held(it: World) -> bool:
    stats = it.cache.stats()
    return not (stats.leases or stats.leased or stats.filling)


@contextmanager
def hanging_lookups(it: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """While inside, the disk does not say what it has; the event is set once it was asked."""
    disk, release, reached = it.tiers.colder["disk"], Event(), Event()
    contains = disk.contains

    def hangs(keys: Sequence[bytes]) -> Mask:
        reached.set()
        release.wait(PATIENCE_S)
        return contains(keys)

    monkeypatch.setattr(disk, "contains", hangs)
    try:
        yield reached
    finally:
        release.set()


def test_what_is_asked_for_comes_up(tmp_path: Path) -> None:
    filled(tmp_path)
    woken = Event()
    with world(tmp_path, on_ready=woken.set) as it:
        ask = asked(it)
        until(lambda: not ask.waits)
        assert woken.wait(PATIENCE_S)
        assert ask.answer is not None
        assert ask.answer.expected == 5 * BLOCK
        assert it.run(PROMPT) == 5 * BLOCK


def test_nothing_is_asked_where_nothing_can_come() -> None:
    with world() as it:
        it.run(PROMPT)
        assert it.tiers.ask(IDS) is None
        assert it.tiers.ask(IDS[:BLOCK]) is None
    with world(host_blocks=0) as it:
        assert it.tiers.ask(IDS) is None


def test_who_cancels_before_the_answer_sets_nothing_in_motion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    with world(tmp_path, options=SLOW) as it:
        with hanging_lookups(it, monkeypatch) as reached:
            ask = asked(it)
            assert reached.wait(PATIENCE_S)
            ask.cancel()
            assert not ask.waits
        it.settle()
        assert ask.answer is None
        assert nothing_held(it)
        assert it.cache.match(IDS) == 0


def test_a_fetch_for_nobody_is_given_up(tmp_path: Path) -> None:
    filled(tmp_path)
    files = FaultyFiles()
    with world(tmp_path, files=files, options=SLOW) as it:
        files.hang_reads = True
        ask = asked(it)
        assert files.hanging.wait(PATIENCE_S)
        until(lambda: ask.answer is not None)
        ask.cancel()
        ask.cancel()  # once is enough
        until(lambda: nothing_held(it))
        files.release.set()
        it.settle()
        assert it.cache.match(IDS) == 0


def test_a_fetch_that_another_request_shares_goes_on(tmp_path: Path) -> None:
    filled(tmp_path)
    files = FaultyFiles()
    with world(tmp_path, files=files, options=SLOW) as it:
        files.hang_reads = True
        first = asked(it)
        assert files.hanging.wait(PATIENCE_S)
        until(lambda: first.answer is not None)
        second = asked(it, np.array([*PROMPT[: 3 * BLOCK], 7, 8, 9, 10, 11], dtype=np.int32))
        until(lambda: second.answer is not None)
        assert second.answer is not None
        assert second.answer.shared == 3 * BLOCK
        first.cancel()
        assert second.waits
        files.hang_reads = False
        files.release.set()
        until(lambda: not second.waits)
        it.settle()
        assert it.cache.match(IDS) == 5 * BLOCK
        assert second.answer.fetch is not None
        assert second.answer.fetch.brought(second.answer.shared) == {"disk": 3 * BLOCK}


def test_a_tier_that_does_not_even_say_what_it_has_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    clock = ManualClock()
    limits = CallLimits(ask=1.0, most_stuck=1)
    options = TieringOptions(reserve_blocks=0, fetch_deadline=1.0, limits=limits)
    with world(tmp_path, options=options, clock=clock) as it:
        with hanging_lookups(it, monkeypatch) as reached:
            ask = asked(it)
            assert reached.wait(PATIENCE_S)
            assert ask.waits
            clock.advance(1.0)
            assert not ask.waits
            assert ask.late
            ask.cancel()
            again = asked(it)
            until(lambda: again.answer is not None)  # by who has other things to say
            assert again.answer is not None
            assert again.answer.fetch is None
        it.settle()
        until(lambda: not it.tiers.watched["disk"].away("read"))
        once_more = asked(it)
        until(lambda: not once_more.waits)
        assert it.cache.match(IDS) == 5 * BLOCK


def test_of_too_many_prompts_the_last_are_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    with world(tmp_path, options=SLOW) as it:
        asks: list[Ask] = []
        with hanging_lookups(it, monkeypatch) as reached:
            asks.append(asked(it))
            assert reached.wait(PATIENCE_S)
            while (ask := it.tiers.ask(IDS)) is not None:
                asks.append(ask)
                assert len(asks) < 10_000
            for one in asks:
                one.cancel()
        it.settle()
        assert nothing_held(it)


def test_a_lookup_that_breaks_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    with world(tmp_path, options=SLOW) as it:

        def breaks(_: Sequence[bytes]) -> Mask:
            raise OSError("broken")

        with monkeypatch.context() as broken:
            broken.setattr(it.tiers.colder["disk"], "contains", breaks)
            ask = asked(it)
            until(lambda: not ask.waits)
            assert ask.answer is not None
            assert ask.answer.expected == 0
        ask = asked(it)
        until(lambda: not ask.waits)
        assert it.cache.match(IDS) == 5 * BLOCK


@pytest.mark.parametrize("while_it_climbs", [True, False])
def test_what_was_fetched_ahead_is_urgent_once_a_request_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, while_it_climbs: bool
) -> None:
    filled(tmp_path)
    files, reached, go = FaultyFiles(), Event(), Event()
    with world(tmp_path, files=files, options=SLOW) as it:
        write = it.device.write_blocks

        def slowly(*args: Any) -> None:
            reached.set()
            go.wait(PATIENCE_S)
            write(*args)

        monkeypatch.setattr(it.device, "write_blocks", slowly)
        files.hang_reads = while_it_climbs
        fetch = it.tiers.prefetch(IDS, priority=Priority.PREFETCH)
        assert fetch is not None
        assert (files.hanging if while_it_climbs else reached).wait(PATIENCE_S)
        assert _moving(it) == [Priority.PREFETCH]
        ask = asked(it)
        until(lambda: ask.answer is not None)
        assert _moving(it) == [Priority.WAITING]
        files.release.set()
        assert reached.wait(PATIENCE_S)
        assert _moving(it) == [Priority.WAITING]
        go.set()
        it.settle()
        ask.cancel()
        assert it.cache.match(IDS) == 5 * BLOCK


def _moving(it: World) -> list[Priority]:
    """How urgent what moves is."""
    return [transfer.priority for link in it.tiers._engine._links.values() for transfer in link._live]
