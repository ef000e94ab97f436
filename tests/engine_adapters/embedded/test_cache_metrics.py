"""What the embedded engine's counters say of its cache is what happened, over small tiers and real requests."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest

from engine_adapters.base import Usage
from engine_adapters.embedded.adapter import EmbeddedAdapter
from engine_adapters.embedded.config import EmbeddedConfig
from tests.engine_adapters.embedded.engine_harness import BLOCK, random_tokens
from tests.engine_adapters.embedded.test_cold_tiers import ask, config, running, settle

__all__ = ["config"]  # the fixture

BLOCKS = 32  # on the device
HOST_BLOCKS = 48
PROMPTS = [random_tokens(12 * BLOCK + 5, seed) for seed in range(6)]


@pytest.fixture
def small(config: EmbeddedConfig) -> Iterator[EmbeddedAdapter]:
    """An engine whose device and host hold less than all prompts, and whose disk is soon full."""
    with running(config) as large:
        row = large.runner.kv.bytes_per_block
    tight = replace(
        config, kv_bytes=BLOCKS * row, host_cache_bytes=HOST_BLOCKS * row, disk_cache_bytes=80 * row
    )
    with running(tight) as adapter:
        assert adapter.tiers is not None
        adapter.tiers._estimates.computed = lambda *_: None  # type: ignore[method-assign]  # loading goes on to pay
        yield adapter


def counters(adapter: EmbeddedAdapter) -> Mapping[str, float]:
    return asyncio.run(adapter.counters())


def total(found: Mapping[str, float], name: str) -> float:
    return sum(value for key, value in found.items() if key.startswith(f"cache_{name}_"))


def test_every_kind_of_event_is_counted_over_small_tiers(small: EmbeddedAdapter) -> None:
    for number in range(6):
        for prompt in (PROMPTS[number], PROMPTS[number], PROMPTS[max(number - 2, 0)]):
            ask(small, prompt)
            settle(small)
    found = counters(small)
    for name in ("matched_tokens", "reused_tokens", "tier_hits", "moved_bytes", "evictions", "fragmentation"):
        tiers = {key.removeprefix(f"cache_{name}_").split("_")[0] for key in found if f"cache_{name}_" in key}
        assert {"device", "host"} <= tiers, name
    assert found["cache_evictions_device_adaptive_lrfu"] > 0
    assert found["cache_evictions_host_lru"] > 0
    assert found["cache_eviction_age_seconds_host_lru_count"] == found["cache_evictions_host_lru"]
    assert found["cache_decisions"] >= found["cache_regret_seconds_count"] > 0
    assert found["cache_decided_load_blocks_host"] > 0
    assert total(found, "ghost_tokens") > 0
    assert found["cache_spilled_bytes"] > 0
    assert found["cache_fetched_bytes"] > 0
    assert found["cache_transfer_seconds_host_device_count"] > 0
    assert found["cache_queue_seconds_host_to_device_waiting_count"] > 0


def test_tokens_by_tier_add_up_for_every_request(small: EmbeddedAdapter) -> None:
    before, usages = counters(small), list[Usage]()
    for number in (0, 0, 1, 1, 2, 2, 3, 0, 1, 3):
        _, usage = ask(small, PROMPTS[number])
        settle(small)
        usages.append(usage)
        after = counters(small)
        step = {key: after[key] - before.get(key, 0.0) for key in after}
        matched, reused = total(step, "matched_tokens"), total(step, "reused_tokens")
        assert step["cache_lookups"] == 1
        assert step["cache_prompt_tokens"] == len(PROMPTS[number])
        assert reused == usage.reuse.reused
        assert reused + step["cache_recomputed_tokens"] == len(PROMPTS[number])
        assert reused <= matched <= 12 * BLOCK
        for tier in ("device", "host", "disk"):
            by_tier = step.get(f"cache_matched_tokens_{tier}", 0), step.get(f"cache_reused_tokens_{tier}", 0)
            assert by_tier[0] >= by_tier[1] == (usage.reuse.by_tier or {}).get(tier, 0)  # type: ignore[call-overload]
        before = after
    tiers = {tier for usage in usages for tier, tokens in (usage.reuse.by_tier or {}).items() if tokens}
    assert {"device", "host"} <= tiers, "otherwise this has shown nothing"


def test_what_lies_below_counts_as_matched_though_it_is_recomputed(config: EmbeddedConfig) -> None:
    with running(config) as adapter:
        ask(adapter, PROMPTS[0])
        ask(adapter, PROMPTS[0])
        settle(adapter)
        adapter.cache.flush()
        assert adapter.tiers is not None
        for _ in range(1000):  # prefill costs nothing: nothing is worth loading
            adapter.tiers.computed([(0, 1000)], 0.0)
        before = counters(adapter)
        _, usage = ask(adapter, PROMPTS[0])
        after = counters(adapter)
        assert usage.reuse.reused == 0
        assert after["cache_matched_tokens_host"] - before.get("cache_matched_tokens_host", 0) == 12 * BLOCK
        assert (
            after["cache_passed_over_tokens_host"] - before.get("cache_passed_over_tokens_host", 0)
            == 12 * BLOCK
        )
        assert after["cache_decided_recompute_blocks"] - before["cache_decided_recompute_blocks"] == 12


def test_a_prompt_that_was_evicted_counts_as_what_a_bigger_device_would_have_had(
    config: EmbeddedConfig,
) -> None:
    with running(replace(config, host_cache_bytes=0, disk_cache_dir=None)) as large:
        row = large.runner.kv.bytes_per_block
    with running(replace(config, host_cache_bytes=0, disk_cache_dir=None, kv_bytes=BLOCKS * row)) as adapter:
        for prompt in PROMPTS[:4]:
            ask(adapter, prompt)
        assert counters(adapter).get("cache_ghost_tokens_device", 0) == 0
        _, usage = ask(adapter, PROMPTS[0])
        assert usage.reuse.reused is not None
        assert counters(adapter)["cache_ghost_tokens_device"] == 12 * BLOCK - usage.reuse.reused


def test_histograms_can_be_put_together_from_their_flat_names(config: EmbeddedConfig) -> None:
    with running(config) as adapter:
        for _ in range(2):
            ask(adapter, PROMPTS[0])
        settle(adapter)
        found = counters(adapter)
    name = "cache_transfer_seconds_device_host"
    buckets = {
        float(key.rpartition("_")[2]): value for key, value in found.items() if key.startswith(f"{name}_le_")
    }
    assert list(buckets.values()) == sorted(buckets.values())
    assert max(buckets.values()) == found[f"{name}_count"] > 0
    assert 0 < found[f"{name}_sum"] <= max(buckets) * found[f"{name}_count"]


def test_counters_are_finite_numbers_under_plain_names(small: EmbeddedAdapter) -> None:
    ask(small, PROMPTS[0])
    for name, value in counters(small).items():
        assert (
            name.replace("_le_", "")
            .replace(".", "")
            .replace("-", "")
            .replace("+", "")
            .replace("_", "")
            .isalnum()
        )
        assert name == name.lower()
        assert np.isfinite(value)
