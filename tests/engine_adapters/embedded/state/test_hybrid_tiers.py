"""Hybrid models over colder tiers: KV and state go down together, and come back together or not at all."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cache_core.state_groups import StateGroup
from engine_adapters.base import Usage
from engine_adapters.embedded.adapter import EmbeddedAdapter
from engine_adapters.embedded.config import EmbeddedConfig
from tests.engine_adapters.embedded.engine_harness import random_tokens
from tests.engine_adapters.embedded.test_cold_tiers import PROMPT, ask, running, settle, warm
from tests.tiny_hybrids import HYBRIDS, Hybrid, save_tiny_hybrid

TAIL = random_tokens(90, 2)
LONGER = np.concatenate([PROMPT, TAIL])  # 290 tokens; boundaries with a state: 192 and 288


def config_of(arch: Hybrid, folder: Path) -> EmbeddedConfig:
    return EmbeddedConfig(
        model=str(save_tiny_hybrid(arch, folder / "model")),
        device="cpu",
        kv_bytes=1 << 20,
        host_cache_bytes=8 << 20,
        disk_cache_dir=folder / "kv",
        disk_cache_bytes=64 << 20,
        cache_dir=folder / "cache",
    )


@pytest.fixture(params=HYBRIDS)
def config(request: pytest.FixtureRequest, tmp_path: Path) -> EmbeddedConfig:
    return config_of(request.param, tmp_path)


@pytest.fixture
def lfm2(tmp_path: Path) -> EmbeddedConfig:
    return config_of("lfm2", tmp_path)


@contextmanager
def used_twice(config: EmbeddedConfig) -> Iterator[tuple[EmbeddedAdapter, str, str]]:
    """An engine that wrote the states behind PROMPT and behind LONGER through, and its answers to both."""
    with running(config) as adapter:
        short, long = warm(adapter), ask(adapter, LONGER)[0]
        assert ask(adapter, LONGER)[1].reuse.reused == 288
        settle(adapter)
        yield adapter, short, long


def forget_device(adapter: EmbeddedAdapter) -> None:
    adapter.cache.flush()
    assert adapter.states is not None
    adapter.states.store.flush()


def keys(adapter: EmbeddedAdapter, tokens: np.ndarray, group: StateGroup) -> list[bytes]:
    assert adapter.tiers is not None
    headers = adapter.tiers._chains.headers("default", tokens)
    return [replace(header, group=group).key for header in headers]


def delete(adapter: EmbeddedAdapter, keys: list[bytes]) -> int:
    """On host and disk."""
    assert adapter.tiers is not None
    assert adapter.tiers.states is not None
    tiers = adapter.tiers
    tiers.host.delete(keys)
    tiers.states.rows.delete(keys)
    return tiers.colder["disk"].delete(keys)


def matched(adapter: EmbeddedAdapter) -> int:
    return int(adapter.engine.counters()["matched_tokens"])


def moved(usage: Usage) -> dict[str, int]:
    assert usage.reuse.by_tier is not None
    return {tier: tokens for tier, tokens in usage.reuse.by_tier.items() if tokens}


def test_kv_from_the_host_goes_with_a_state_that_stayed(config: EmbeddedConfig) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
        adapter.cache.flush()
        text, usage = ask(adapter, PROMPT)
        assert text == expected
        assert usage.reuse.by_tier == {"device": 0, "host": 192}


def test_a_state_comes_up_from_the_host_though_its_kv_stayed(config: EmbeddedConfig) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
        assert adapter.states is not None
        adapter.states.store.flush()
        text, usage = ask(adapter, PROMPT)
        assert text == expected
        assert usage.reuse.by_tier == {"device": 192}


def test_both_come_up_from_the_host(config: EmbeddedConfig) -> None:
    with used_twice(config) as (adapter, short, long):
        for prompt, expected, reused in ((PROMPT, short, 192), (LONGER, long, 288)):
            forget_device(adapter)
            text, usage = ask(adapter, prompt)
            assert text == expected
            assert moved(usage) == {"host": reused}


def test_both_survive_a_restart_on_disk(config: EmbeddedConfig) -> None:
    with used_twice(config) as (_, short, long):
        pass
    for prompt, expected, reused in ((PROMPT, short, 192), (LONGER, long, 288)):
        with running(config) as again:
            text, usage = ask(again, prompt)
            assert text == expected
            assert moved(usage) == {"disk": reused}
            assert usage.reuse.reused == reused


def test_without_its_state_the_next_whole_boundary_serves_and_no_kv_behind_it_is_loaded(
    config: EmbeddedConfig,
) -> None:
    with used_twice(config) as (_, _, long):
        pass
    with running(config) as again:
        assert delete(again, keys(again, LONGER, StateGroup.RECURRENT)[-1:]) == 1
        text, usage = ask(again, LONGER)
        assert text == long
        assert moved(usage) == {"disk": 192}
        assert again.tiers is not None
        assert again.tiers.stats()["disk"].hits == 12 + 1, "blocks up to there, and a state"
        assert matched(again) == 288, "what is there, reused or not"
        settle(again)
        forget_device(again)
        assert ask(again, LONGER)[1].reuse.reused == 192, "it was computed anew, but not used a second time"


def test_without_any_state_no_kv_is_loaded(config: EmbeddedConfig) -> None:
    with used_twice(config) as (_, _, long):
        pass
    with running(config) as again:
        assert delete(again, keys(again, LONGER, StateGroup.RECURRENT)) == 2
        text, usage = ask(again, LONGER)
        assert text == long
        assert usage.reuse.reused == 0
        assert again.tiers is not None
        assert again.tiers.stats()["disk"].hits == 0
        assert matched(again) == 288
        assert ask(again, LONGER)[1].reuse.reused == 288, "a snapshot was taken on the way"


def test_without_its_kv_a_state_is_not_used(config: EmbeddedConfig) -> None:
    with used_twice(config) as (_, _, long):
        pass
    with running(config) as again:
        assert delete(again, keys(again, LONGER, StateGroup.ATTENTION)[14:15]) == 1
        text, usage = ask(again, LONGER)
        assert text == long
        assert moved(usage) == {"disk": 192}
        assert matched(again) == 224


def test_a_state_alone_is_never_below_the_device(lfm2: EmbeddedConfig) -> None:
    with used_twice(lfm2) as (adapter, _, _):
        assert adapter.tiers is not None
        for tier in (adapter.tiers.states.rows, adapter.tiers.colder["disk"]):  # type: ignore[union-attr]
            there = tier.contains(keys(adapter, LONGER, StateGroup.RECURRENT))
            assert np.flatnonzero(there).tolist() == [11, 17]
        assert adapter.tiers.colder["disk"].contains(keys(adapter, LONGER, StateGroup.ATTENTION)).all()


def test_other_scopes_do_not_see_it(lfm2: EmbeddedConfig) -> None:
    with used_twice(lfm2) as (_, short, _):
        pass
    with running(lfm2) as again:
        text, usage = ask(again, PROMPT, "other")
        assert (text, usage.reuse.reused) == (short, 0)


def test_a_purge_forgets_states_on_every_tier(lfm2: EmbeddedConfig) -> None:
    with used_twice(lfm2) as (adapter, _, _):
        assert adapter.tiers is not None
        assert adapter.tiers.states is not None
        assert adapter.tiers.purge("default").blocks > 0
        assert adapter.engine.counters()["state_snapshots"] == 0
        states = keys(adapter, LONGER, StateGroup.RECURRENT)
        assert not adapter.tiers.states.rows.contains(states).any()
        assert not adapter.tiers.colder["disk"].contains(states).any()
        assert ask(adapter, LONGER)[1].reuse.reused == 0
    with running(lfm2) as again:
        assert ask(again, LONGER)[1].reuse.reused == 0


def test_a_flush_forgets_states_on_the_device(lfm2: EmbeddedConfig) -> None:
    with running(lfm2) as adapter:
        ask(adapter, PROMPT)
        assert adapter.engine.counters()["state_snapshots"] == 1
        asyncio.run(adapter.flush())
        assert adapter.engine.counters()["state_snapshots"] == 0


def test_written_back_a_state_goes_down_when_it_is_evicted(lfm2: EmbeddedConfig) -> None:
    with running(replace(lfm2, write_policy="write_back")) as adapter:
        expected, _ = ask(adapter, PROMPT)
        assert adapter.states is not None
        assert adapter.tiers is not None
        assert adapter.tiers.stats()["host"].blocks == 0
        adapter.states.store._room = 1
        ask(adapter, TAIL)
        settle(adapter)
        adapter.cache.flush()
        text, usage = ask(adapter, PROMPT)
        assert text == expected
        assert moved(usage) == {"host": 192}


def test_written_back_a_state_goes_down_with_its_kv(lfm2: EmbeddedConfig) -> None:
    with running(replace(lfm2, write_policy="write_back")) as adapter:
        expected, _ = ask(adapter, PROMPT)
        adapter.cache.evict(20)
        settle(adapter)
    with running(lfm2) as again:
        text, usage = ask(again, PROMPT)
        assert text == expected
        assert moved(usage) == {"disk": 192}


def test_where_the_host_has_no_room_for_a_state_nothing_is_loaded_in_vain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of("qwen3_next", tmp_path)
    with used_twice(config) as (adapter, short, _):
        assert adapter.tiers is not None
        assert adapter.tiers.states is not None
        assert adapter.tiers.states.row_bytes > adapter.tiers.host.block_bytes
        small = replace(config, host_cache_bytes=2 * adapter.tiers.states.row_bytes - 1)
    with running(small) as again:
        assert "stay on the device" in caplog.text
        text, usage = ask(again, PROMPT)
        assert (text, usage.reuse.reused) == (short, 0)
        assert again.tiers is not None
        assert again.tiers.stats()["disk"].hits == 0
