"""Prefixes cool down and come back: right bytes, counted once, forgotten when told so."""

from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from cache_core.tiered import TieringOptions, WritePolicy
from cache_core.transfer import LinkConfig
from tests.cache_core.manual_clock import ManualClock
from tests.cache_core.tiered.world import BLOCK, PATIENT, World, until, world
from tests.cache_core.transfer.jobs import FakeJob
from tests.waiting import PATIENCE_S

PROMPT = list(range(100, 100 + 5 * BLOCK + 1))


def warm(it: World, prompt: list[int] = PROMPT) -> None:
    """Use a prompt twice, so that it is written through."""
    it.run(prompt)
    it.run(prompt)
    it.settle()


def test_a_prefix_used_twice_is_in_the_host_tier_and_comes_back_from_there() -> None:
    with world() as it:
        warm(it)
        assert it.tiers.host.stats().blocks == 5
        it.cache.flush()
        assert it.fetch(PROMPT)
        assert it.run(PROMPT) == 5 * BLOCK


def test_a_prefix_used_once_is_not_copied_down() -> None:
    with world() as it:
        it.run(PROMPT)
        it.settle()
        assert it.tiers.host.stats().blocks == 0
        assert not it.fetch([1, *PROMPT])


def test_a_prefix_that_was_evicted_before_its_second_use_is_copied_down_at_that_one() -> None:
    with world() as it:
        it.run(PROMPT)
        it.cache.flush()  # others needed the room
        assert it.run([*PROMPT[: 3 * BLOCK], *range(900, 900 + 3 * BLOCK)]) == 0, "it was computed again"
        it.settle()
        assert it.tiers.host.stats().blocks == 3, "what both have in common, and not what was used once"
        it.cache.flush()
        assert it.fetch(PROMPT)
        assert it.run(PROMPT) == 3 * BLOCK


def test_of_what_was_purged_no_use_is_remembered() -> None:
    with world() as it:
        it.run(PROMPT)
        it.settle()
        it.tiers.purge("default")
        it.run(PROMPT)
        it.settle()
        assert it.tiers.host.stats().blocks == 0


def test_the_same_tokens_of_another_scope_are_no_second_use() -> None:
    with world() as it:
        it.run(PROMPT)
        it.cache.flush()
        it.run(PROMPT, "other")
        it.settle()
        assert it.tiers.host.stats().blocks == 0


def test_a_prefix_survives_a_restart_on_disk(tmp_path: Path) -> None:
    with world(tmp_path) as before:
        warm(before)
    with world(tmp_path) as after:
        assert after.run([*PROMPT[:BLOCK], 7]) == 0
        assert after.fetch(PROMPT)
        assert after.run(PROMPT) == 5 * BLOCK
        assert after.tiers.stats()["disk"].hits == 4  # the first block was on the device already


def test_a_block_that_is_damaged_on_disk_ends_what_comes_up(tmp_path: Path) -> None:
    with world(tmp_path) as before:
        warm(before)
    segment = max((f for f in tmp_path.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    with world(tmp_path) as after:
        assert after.fetch(PROMPT)
        assert after.run(PROMPT) == 2 * BLOCK  # the third of five was hit
        assert sum(after.tiers.stats()["disk"].drops.values()) == 1


@pytest.mark.parametrize("host_blocks", [1, 2, 3])
def test_a_prefix_larger_than_the_host_comes_up_from_disk_in_pieces(tmp_path: Path, host_blocks: int) -> None:
    long = list(range(100, 100 + 11 * BLOCK + 1))
    with world(tmp_path) as before:
        warm(before, long)
    with world(tmp_path, host_blocks=host_blocks) as after:
        fetch = after.tiers.prefetch(np.array(long, dtype=np.int32))
        after.settle()
        assert fetch is not None
        assert fetch.brought() == {"disk": 11 * BLOCK}
        assert after.run(long) == 11 * BLOCK


def test_a_hole_below_ends_what_comes_up_in_pieces(tmp_path: Path) -> None:
    long = list(range(100, 100 + 11 * BLOCK + 1))
    with world(tmp_path) as before:
        warm(before, long)
    with world(tmp_path, host_blocks=4) as after:
        headers = after.tiers._chains.headers("default", np.array(long, dtype=np.int32))
        fetch = after.tiers.prefetch(np.array(long, dtype=np.int32))
        after.tiers.colder["disk"].delete([headers[10].key])
        after.settle()
        assert fetch is not None
        assert not fetch.lease.live
        assert after.run(long) >= 2 * BLOCK


def test_other_weights_find_nothing_on_the_same_disk(tmp_path: Path) -> None:
    with world(tmp_path) as before:
        warm(before)
    with world(tmp_path, weights=b"other") as after:
        assert not after.fetch(PROMPT)
        assert after.run(PROMPT) == 0


def test_another_scope_finds_nothing_on_any_tier(tmp_path: Path) -> None:
    with world(tmp_path) as it:
        warm(it)
        it.cache.flush()
        assert not it.tiers.prefetch(np.array(PROMPT, dtype=np.int32), "other")
        assert it.run(PROMPT, "other") == 0


def test_a_purged_scope_is_gone_on_every_tier_and_after_a_restart(tmp_path: Path) -> None:
    with world(tmp_path) as it:
        warm(it)
        it.run(PROMPT, "kept")
        it.run(PROMPT, "kept")
        it.settle()
        assert it.tiers.purge("default").blocks >= 10
        assert not it.fetch(PROMPT)
        it.cache.flush()
        assert it.fetch(PROMPT, "kept")
    with world(tmp_path) as after:
        assert not after.fetch(PROMPT)
        assert after.fetch(PROMPT, "kept")


def test_who_needs_a_prefix_that_is_on_its_way_waits_for_it_and_finds_it() -> None:
    with world() as it:
        warm(it)
        it.cache.flush()
        ids = np.array(PROMPT, dtype=np.int32)
        fetch = it.tiers.prefetch(ids)
        assert fetch is not None
        waits = it.cache.computing(ids)
        assert waits is None or waits.owner is fetch.lease
        assert it.tiers.prefetch(ids) is None or fetch.done
        it.settle()
        assert it.cache.match(ids) == 5 * BLOCK
        assert fetch.brought() == {"host": 5 * BLOCK}


def test_what_another_request_computes_a_part_of_is_fetched_all_the_same() -> None:
    with world() as it:
        warm(it)
        it.cache.flush()
        ids = np.array(PROMPT, dtype=np.int32)
        computing = it.cache.acquire(np.array([*PROMPT[:BLOCK], 7], dtype=np.int32))
        assert it.fetch(PROMPT)
        assert it.cache.match(ids) == 5 * BLOCK
        computing.release()


def test_what_another_request_computes_all_of_is_not_fetched() -> None:
    with world() as it:
        warm(it)
        it.cache.flush()
        computing = it.cache.acquire(np.array(PROMPT, dtype=np.int32))
        assert not it.fetch(PROMPT)
        computing.release()


def test_where_recomputing_is_sooner_nothing_is_loaded() -> None:
    with world() as it:
        warm(it)
        it.cache.flush()
        for _ in range(200):
            it.tiers.computed([(0, 1000)], 1e-9)
        assert not it.fetch(PROMPT)


def test_behind_a_long_queue_recomputing_is_sooner() -> None:
    with world() as it:
        warm(it)
        it.cache.flush()
        gate = Event()
        others = [FakeJob(pieces=2, nbytes=1 << 40, gate=gate) for _ in range(2)]  # minutes
        transfers = [it.tiers._engine.submit(job) for job in others]
        ids = np.array(PROMPT, dtype=np.int32)
        assert it.tiers.prefetch(ids) is None
        gate.set()
        assert all(transfer.wait(PATIENCE_S) for transfer in transfers)
        assert it.fetch(PROMPT)


def test_a_prefix_that_is_partly_gone_below_comes_up_as_far_as_it_is_whole() -> None:
    with world() as it:
        warm(it)
        it.cache.flush()
        headers = it.tiers._chains.headers("default", np.array(PROMPT, dtype=np.int32))
        it.tiers.host.delete([headers[2].key])
        assert it.fetch(PROMPT)
        assert it.run(PROMPT) == 2 * BLOCK


def test_a_fetch_leaves_blocks_for_what_runs() -> None:
    with world(options=TieringOptions(reserve_blocks=12)) as it:
        warm(it)
        it.cache.flush()
        assert it.fetch(PROMPT)
        assert it.run(PROMPT) == 4 * BLOCK


def test_where_nothing_is_left_to_what_runs_nothing_is_fetched() -> None:
    with world(options=TieringOptions(reserve_blocks=16)) as it:
        warm(it)
        it.cache.flush()
        assert not it.fetch(PROMPT)


@pytest.mark.parametrize("policy", ["none", "write_back"])
def test_other_write_policies_copy_nothing_on_a_second_use(policy: WritePolicy) -> None:
    with world(options=TieringOptions(write_policy=policy, reserve_blocks=0)) as it:
        warm(it)
        assert it.tiers.host.stats().blocks == 0


def test_with_write_back_what_is_evicted_comes_back_though_it_was_used_once(tmp_path: Path) -> None:
    with world(tmp_path, options=WRITE_BACK) as it:
        it.run(PROMPT)
        it.cache.evict(2)
        assert it.tiers.host.stats().blocks == 5  # its parents went along
        it.cache.evict(16)
        it.settle()
        assert it.fetch(PROMPT)
        assert it.run(PROMPT) == 5 * BLOCK
    with world(tmp_path, options=WRITE_BACK) as after:
        assert after.fetch(PROMPT)
        assert after.run(PROMPT) == 5 * BLOCK


def test_a_host_without_room_for_a_parent_takes_no_child_of_it() -> None:
    with world(host_blocks=3, options=WRITE_BACK) as it:
        it.run(PROMPT)
        it.cache.evict(16)
        it.settle()
        assert it.tiers.host.stats().blocks == 3
        assert it.fetch(PROMPT)
        assert it.run(PROMPT) == 3 * BLOCK


WRITE_BACK = TieringOptions(write_policy="write_back", reserve_blocks=0)


def test_a_way_has_the_budget_that_it_was_given(tmp_path: Path) -> None:
    """What goes down to the disk waits for it; what goes down to the host does not."""
    clock = ManualClock()
    options = replace(PATIENT, links={("host", "disk"): LinkConfig(bandwidth=1.0, burst=0.0)})
    with world(tmp_path, blocks=32, options=options, clock=clock) as it:
        it.run(PROMPT)
        it.run(PROMPT)
        until(lambda: it.tiers.stats()["disk"].blocks == 5)  # the first one finds the budget untouched
        second = [9, *PROMPT]
        it.run(second)
        it.run(second)
        until(lambda: it.tiers.host.stats().blocks == 10)
        assert it.tiers.stats()["disk"].blocks == 5

        def later() -> bool:
            clock.advance(1e6)
            return it.tiers.idle

        until(later)
        assert it.tiers.stats()["disk"].blocks == 10
