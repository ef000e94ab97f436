"""The sweeper makes room while nobody works, and only then."""

from pathlib import Path

import numpy as np
import pytest

from cache_core import RetentionHints
from cache_core.tiered import Sweeper, TieringOptions, Watermarks
from tests.cache_core.manual_clock import ManualClock
from tests.cache_core.tiered.faulty_files import FaultyFiles
from tests.cache_core.tiered.world import BLOCK, World, until, world


def fill(it: World, prompts: int) -> None:
    """Cache that many prompts of four blocks each."""
    for number in range(prompts):
        it.run([1000 + number, *range(4 * BLOCK - 1)])


def used(it: World) -> float:
    stats = it.cache.stats()
    return 1 - stats.free / stats.total


def test_above_the_upper_watermark_it_sweeps_down_to_the_lower_one() -> None:
    with world(blocks=40) as it:
        fill(it, 9)
        sweeper = Sweeper(it.tiers, lambda: False, Watermarks(0.85, 0.70), batch=1, pause=0.01)
        try:
            until(lambda: used(it) <= 0.70)
        finally:
            sweeper.close()
        assert used(it) > 0.6
        it.cache.check_integrity()


def test_below_the_upper_watermark_it_leaves_everything() -> None:
    with world(blocks=40) as it:
        fill(it, 8)
        sweeper = Sweeper(it.tiers, lambda: False, Watermarks(0.85, 0.70), pause=60)
        sweeper.close()
        assert sweeper.sweep() == 0
        assert used(it) == pytest.approx(0.8)


def test_while_the_engine_works_it_lets_go() -> None:
    with world(blocks=40) as it:
        fill(it, 10)
        sweeper = Sweeper(it.tiers, lambda: True, pause=60)
        assert sweeper.sweep() == 0
        sweeper.close()
        assert used(it) == 1.0


def test_what_the_sweep_left_in_pieces_is_put_together_while_nobody_works() -> None:
    busy = True
    with world(blocks=64) as it:
        leases = [it.lease([1000 + number, *range(2 * BLOCK - 1)]) for number in range(32)]
        for lease in leases[::2] + leases[1::2]:
            lease.release()
        it.cache.evict(32)
        before = it.cache.stats().fragmentation
        sweeper = Sweeper(it.tiers, lambda: busy, pause=60)
        sweeper.compact()
        assert it.cache.stats().fragmentation == before > 0.9
        busy = False
        sweeper.compact()
        sweeper.close()
        assert it.cache.stats().fragmentation < 0.1
        for number in range(1, 32, 2):
            assert it.run([1000 + number, *range(2 * BLOCK - 1), 5]) == 2 * BLOCK  # bytes checked


def test_the_host_is_put_together_after_the_device_and_let_go_of_when_somebody_works() -> None:
    busy = True
    with world(blocks=64, host_blocks=64) as it:
        backed_up(it, 16)
        rows = it.tiers.host._pool
        assert rows is not None
        for number in range(0, 16, 2):
            tokens = np.array([1000 + number, *range(4 * BLOCK - 1)], dtype=np.int32)
            it.tiers.host.delete([header.key for header in it.tiers._chains.headers("default", tokens)])
        before = rows.fragmentation()
        sweeper = Sweeper(it.tiers, lambda: busy, pause=60)
        sweeper.compact()
        assert rows.fragmentation() == before > 0.8
        busy = False
        sweeper.compact()
        sweeper.close()
        assert rows.fragmentation() < 0.1
        assert it.tiers.stats()["host"].compacted >= 12
        it.tiers.host.check_integrity()
        it.cache.flush()
        for number in range(1, 16, 2):
            prompt = [1000 + number, *range(4 * BLOCK - 1), 5]
            assert it.fetch(prompt)
            assert it.run(prompt) == 4 * BLOCK  # bytes checked


def test_leased_blocks_stay() -> None:
    with world(blocks=40) as it:
        fill(it, 10)
        lease = it.cache.acquire(np.array([1000, *range(4 * BLOCK - 1), 5], dtype=np.int32))
        sweeper = Sweeper(it.tiers, lambda: False, Watermarks(0.5, 0.0), pause=60)
        sweeper.sweep()
        sweeper.close()
        assert lease.matched == 4 * BLOCK
        it.check(lease, "default")
        assert it.cache.stats().leased == 4
        lease.release()


def test_what_is_swept_away_comes_back_from_the_host_though_it_was_used_once() -> None:
    with world(blocks=40) as it:
        fill(it, 10)
        sweeper = Sweeper(it.tiers, lambda: False, Watermarks(0.5, 0.0), pause=60)
        assert sweeper.sweep() == 40
        sweeper.close()
        it.settle()
        for number in range(10):
            prompt = [1000 + number, *range(4 * BLOCK - 1), 5]
            assert it.fetch(prompt)
            assert it.run(prompt) == 4 * BLOCK


def test_where_nothing_is_to_be_copied_down_nothing_is_swept_away() -> None:
    with world(blocks=40, options=TieringOptions(write_policy="none", reserve_blocks=0)) as it:
        fill(it, 10)
        sweeper = Sweeper(it.tiers, lambda: False, Watermarks(0.5, 0.0), pause=60)
        assert sweeper.sweep() == 0
        sweeper.close()


def backed_up(it: World, prompts: int) -> None:
    """Prompts of four blocks each, used twice, so that they are copied down."""
    for number in range(prompts):
        tokens = [1000 + number, *range(4 * BLOCK - 1)]
        it.run(tokens)
        it.tiers.used(np.array(tokens, dtype=np.int32))
        it.settle()


def test_the_host_is_swept_of_what_a_colder_tier_has_and_of_nothing_else(tmp_path: Path) -> None:
    with world(tmp_path, blocks=64, host_blocks=20) as it:
        backed_up(it, 5)
        assert it.tiers.host.stats().blocks == 20
        sweeper = Sweeper(it.tiers, lambda: False, Watermarks(0.85, 0.70), batch=1, pause=60)
        assert sweeper.sweep() == 6
        assert it.tiers.host.stats().blocks == 14
        assert it.tiers.stats()["disk"].blocks == 20
        it.tiers.colder["disk"].clear()
        assert it.tiers.sweep_host(20) == 0
        sweeper.close()
        it.tiers.host.check_integrity()


def test_without_a_colder_tier_the_host_keeps_what_it_has() -> None:
    with world(blocks=64, host_blocks=20) as it:
        backed_up(it, 5)
        assert it.tiers.sweep_host(20) == 0
        assert it.tiers.host.stats().blocks == 20


def on_disk(it: World, prompt: int) -> list[bool]:
    tokens = np.array([1000 + prompt, *range(4 * BLOCK - 1)], dtype=np.int32)
    keys = [header.key for header in it.tiers._chains.headers("default", tokens)]
    return it.tiers.colder["disk"].contains(keys).tolist()


def test_what_the_disk_lacks_goes_there_before_the_host_is_swept_of_it(tmp_path: Path) -> None:
    with world(tmp_path, blocks=64, host_blocks=20) as it:
        backed_up(it, 5)
        it.tiers.colder["disk"].clear()
        assert on_disk(it, 0) == [False] * 4
        assert it.tiers.sweep_host(2) == 0, "it goes to the disk first"
        it.settle()
        assert on_disk(it, 0) == [True] * 4, "with its parents"
        assert on_disk(it, 1) == [False] * 4, "that is not next"
        sweeper = Sweeper(it.tiers, lambda: False, Watermarks(0.5, 0.5), batch=4, pause=0.01)
        try:
            until(lambda: (it.tiers.host.stats().blocks or 0) <= 10)
        finally:
            sweeper.close()
        it.cache.flush()
        assert it.fetch([1000, *range(4 * BLOCK - 1), 5])
        assert it.run([1000, *range(4 * BLOCK - 1), 5]) == 4 * BLOCK


def test_a_child_whose_parent_is_lost_does_not_go_down_alone(tmp_path: Path) -> None:
    with world(tmp_path, blocks=64, host_blocks=20) as it:
        backed_up(it, 1)
        it.tiers.colder["disk"].clear()
        tokens = np.array([1000, *range(4 * BLOCK - 1)], dtype=np.int32)
        it.tiers.host.delete([it.tiers._chains.headers("default", tokens)[1].key])
        it.tiers.sweep_host(20)
        it.settle()
        assert on_disk(it, 0) == [True, False, False, False]


def test_a_disk_that_refuses_again_is_not_tried_for_ever(tmp_path: Path) -> None:
    files = FaultyFiles()
    with world(tmp_path, blocks=64, host_blocks=20, files=files) as it:
        files.full = True
        backed_up(it, 5)
        drops = []
        for _ in range(4):
            assert it.tiers.sweep_host(4) == 0
            it.settle()
            drops.append(sum(it.tiers.stats()["disk"].drops.values()))
        assert drops[0] == drops[3]


def on_disk_share(it: World, folder: Path) -> float:
    """Of the disk's size, that segments take."""
    return (
        sum(path.stat().st_size for path in folder.glob("*.segment"))
        / it.tiers.stats()["disk"].capacity_bytes
    )


def test_the_disk_keeps_to_its_watermarks_and_loses_what_was_used_longest_ago(tmp_path: Path) -> None:
    with world(tmp_path, blocks=64, host_blocks=8, disk_bytes=1 << 20) as it:
        number = 0
        while on_disk_share(it, tmp_path) <= 0.5:
            backed_up_again(it, number)
            number += 1
        sweeper = Sweeper(it.tiers, lambda: busy, Watermarks(0.5, 0.3), pause=60)
        busy = True
        sweeper.clean()
        assert on_disk_share(it, tmp_path) > 0.5, "it lets go of a busy engine"
        busy = False
        sweeper.clean()
        sweeper.close()
        assert 0.15 < on_disk_share(it, tmp_path) <= 0.3
        assert on_disk(it, number - 1) == [True] * 4
        assert on_disk(it, 0) == [False] * 4
        assert it.tiers.stats()["disk"].evicted
        it.tiers.colder["disk"].check_integrity()  # type: ignore[attr-defined]


def test_tiers_may_have_watermarks_of_their_own(tmp_path: Path) -> None:
    with world(tmp_path, blocks=64, host_blocks=8, disk_bytes=1 << 20) as it:
        number = 0
        while on_disk_share(it, tmp_path) <= 0.5:
            backed_up_again(it, number)
            number += 1
        before = on_disk_share(it, tmp_path)
        sweeper = Sweeper(
            it.tiers, lambda: False, Watermarks(0.5, 0.3), pause=60, apart={"disk": Watermarks()}
        )
        sweeper.clean()
        sweeper.close()
        assert on_disk_share(it, tmp_path) == before


@pytest.mark.parametrize("marks", [(0.5, 0.6), (1.1, 0.7), (0.5, -0.1)])
def test_watermarks_that_cannot_be_are_refused(marks: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="shares"):
        Watermarks(*marks)


def backed_up_again(it: World, number: int) -> None:
    """One prompt of four blocks, used twice, and gone from the device."""
    tokens = [1000 + number, *range(4 * BLOCK - 1)]
    it.run(tokens)
    it.tiers.used(np.array(tokens, dtype=np.int32))
    it.settle()
    it.cache.flush()


def test_branches_past_their_time_to_live_are_pruned_below_every_watermark() -> None:
    with world(blocks=40) as it:
        it.run([1, *range(2 * BLOCK)])
        lease = it.lease([2, *range(2 * BLOCK)])
        lease.release(RetentionHints(ttl_s=0))
        sweeper = Sweeper(it.tiers, lambda: busy, pause=60)
        busy = True
        assert sweeper.sweep() == 0
        busy = False
        assert sweeper.sweep() == 2
        sweeper.close()
        assert it.cache.stats().cached == 2


def test_a_tier_that_took_long_to_clean_is_left_alone_for_many_times_as_long(tmp_path: Path) -> None:
    clock, cleaned = ManualClock(), 0
    with world(tmp_path) as it:

        def slowly(*_: object) -> int:
            nonlocal cleaned
            cleaned += 1
            clock.advance(3.0)
            return 0

        it.tiers.colder["disk"].clean = slowly  # type: ignore[method-assign]
        sweeper = Sweeper(it.tiers, lambda: False, pause=60, clock=clock.now)
        for _ in range(3):
            sweeper.clean()
        assert cleaned == 1
        clock.advance(59.0)
        sweeper.clean()
        assert cleaned == 1
        clock.advance(2.0)
        sweeper.clean()
        assert cleaned == 2
        sweeper.close()
