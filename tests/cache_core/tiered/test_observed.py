"""Whoever watches a tiered cache hears of everything that happens, with right numbers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cache_core.metrics import RecordingObserver
from cache_core.tiered import SeenBelow, TieringOptions
from tests.cache_core.tiered.test_tiered_cache import PROMPT, warm
from tests.cache_core.tiered.world import BLOCK, World, world


def prompt(number: int, blocks: int = 5) -> list[int]:
    return list(range(1000 * number, 1000 * number + blocks * BLOCK + 1))


def seen(it: World, tokens: list[int]) -> SeenBelow | None:
    ask = it.tiers.ask(np.array(tokens, dtype=np.int32))
    assert ask is not None
    it.settle()
    return ask.seen


def test_bytes_that_went_down_and_came_up_are_told_with_their_times() -> None:
    observer = RecordingObserver()
    with world(observer=observer) as it:
        warm(it)
        it.cache.flush()
        it.fetch(PROMPT)
        record, size = observer.record(), 5 * it.device.bytes_per_block
        assert record.moved_bytes == {("device", "host"): size, ("host", "device"): size}
        assert (record.spilled_bytes, record.fetched_bytes) == (size, size)
        assert record.seconds["host", "device"].count == 1
        assert record.queued["host to device", "waiting"].count == 1


def test_a_decision_to_load_is_told_once_and_its_regret_when_it_ended() -> None:
    observer = RecordingObserver()
    with world(observer=observer) as it:
        warm(it)
        it.cache.flush()
        it.fetch(PROMPT)
        record = observer.record()
        assert (record.decisions, record.decided_load, record.decided_recompute) == (1, {"host": 5}, 0)
        assert record.regret.count == 1


def test_a_load_that_brought_nothing_is_regretted(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = RecordingObserver()
    with world(observer=observer) as it:
        warm(it)
        it.cache.flush()
        monkeypatch.setattr(it.device, "write_blocks", _fails)
        it.fetch(PROMPT)
        regret = observer.record().regret
        assert regret.count == 1
        assert regret.sum > 1, "all of it is computed after all, which is dear here"


def _fails(*_: object, **__: object) -> None:
    raise OSError("the device is gone")


def test_what_leaves_the_device_for_want_of_room_is_told_with_policy_and_age() -> None:
    observer = RecordingObserver()
    with world(observer=observer, blocks=8) as it:
        it.run(prompt(1))
        it.run(prompt(2))
        record = observer.record()
        # 6 blocks for the second prompt (one of them partial), 3 of 8 were free
        assert record.evictions == {("device", "lru"): 3}
        assert record.eviction_age["device", "lru"].count == 3


def test_what_leaves_host_and_disk_for_want_of_room_is_told(tmp_path: Path) -> None:
    observer = RecordingObserver()
    with world(tmp_path, observer=observer, host_blocks=8, disk_bytes=1 << 20) as it:
        for number in range(1, 60):
            it.cache.flush()
            warm(it, prompt(number))
        stats, record = it.tiers.stats(), observer.record()
        for tier in ("host", "disk"):
            assert stats[tier].evicted  # type: ignore[index]
            assert record.evictions[tier, "lru"] == stats[tier].evicted  # type: ignore[index]
            assert record.eviction_age[tier, "lru"].count == stats[tier].evicted  # type: ignore[index]


def test_what_a_tier_drops_is_told_once(tmp_path: Path) -> None:
    observer = RecordingObserver()
    with world(tmp_path) as before:
        warm(before)
    segment = max((f for f in tmp_path.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    with world(tmp_path, observer=observer) as after:
        after.fetch(PROMPT)
        drops = after.tiers.stats()["disk"].drops
        assert sum(drops.values()) == 1
        assert observer.record().drops == {("disk", reason): count for reason, count in drops.items()}


def test_tiers_say_what_they_had_and_what_bigger_ones_would_have_had(tmp_path: Path) -> None:
    with world(tmp_path, host_blocks=8) as it:
        warm(it, prompt(1))
        warm(it, prompt(2))  # of the first one, 3 blocks are left in the host
        it.cache.flush()
        below = seen(it, prompt(1))
        assert below is not None
        assert below == replace(below, first=0, sources=("host",) * 3 + ("disk",) * 2, ghosts={"host": 2})
        assert below.matched(BLOCK, 4 * BLOCK, BLOCK) == {"host": 2 * BLOCK, "disk": BLOCK}


def test_a_block_that_no_tier_has_ends_the_ghosts_behind_it() -> None:
    with world(host_blocks=8) as it:
        warm(it, prompt(1))
        warm(it, prompt(2))
        it.cache.flush()
        assert seen(it, [7, *prompt(1)]) == SeenBelow(0, ())
        below = seen(it, prompt(1))
        assert below is not None
        assert below.ghosts == {"host": 2}


@pytest.mark.parametrize("policy", ["adaptive_lrfu", "lru_k", "cost"])
def test_a_prompt_that_a_bigger_device_would_still_have_had_is_told_once(policy: str) -> None:
    observer = RecordingObserver()
    with world(observer=observer, blocks=8, policy=policy, options=TieringOptions("none")) as it:
        it.run(prompt(1))
        it.run(prompt(2))
        assert observer.record().ghost_tokens == {}
        had = it.cache.match(np.array(prompt(1), dtype=np.int32))
        it.run(prompt(1))
        assert observer.record().ghost_tokens == {"device": 5 * BLOCK - had}


def test_what_is_computed_twice_at_the_same_time_is_no_ghost() -> None:
    observer = RecordingObserver()
    with world(observer=observer, policy="adaptive_lrfu") as it:
        ids = np.array(prompt(1), dtype=np.int32)
        leases = [it.cache.acquire(ids) for _ in range(2)]
        for lease in leases:
            lease.extend(ids)
            it.compute(lease, "default")
        for lease in leases:
            lease.release()
        assert observer.record().ghost_tokens == {}


def test_free_blocks_in_pieces_are_told_of(tmp_path: Path) -> None:
    observer = RecordingObserver()
    with world(tmp_path, observer=observer) as it:
        warm(it, prompt(1))
        warm(it, prompt(2))
        it.tiers.purge("default")
        warm(it, prompt(3))
        stats = it.cache.stats()
        it.tiers.host.stats()
        it.tiers.colder["disk"].clean()
        shares = observer.record().fragmentation
        assert shares["device"] == stats.fragmentation
        assert 0 < shares["disk"] < 1, "what was purged is dead, what came after it lives"
        assert "host" in shares
