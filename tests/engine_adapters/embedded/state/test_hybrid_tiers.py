"""Hybrid models over colder tiers: KV comes back from there, and is reused as far as a state is still at hand."""

import asyncio
from pathlib import Path

import pytest

from engine_adapters.embedded.config import EmbeddedConfig
from tests.engine_adapters.embedded.test_cold_tiers import PROMPT, ask, running, warm
from tests.tiny_hybrids import save_tiny_hybrid


@pytest.fixture(params=["qwen3_next", "falcon_h1"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> EmbeddedConfig:
    return EmbeddedConfig(
        model=str(save_tiny_hybrid(request.param, tmp_path / "model")),
        device="cpu",
        kv_bytes=1 << 20,
        host_cache_bytes=8 << 20,
        disk_cache_dir=tmp_path / "kv",
        disk_cache_bytes=64 << 20,
        cache_dir=tmp_path / "cache",
    )


def test_kv_from_the_host_goes_with_a_state_that_stayed(config: EmbeddedConfig) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
        adapter.cache.flush()
        text, usage = ask(adapter, PROMPT)
        assert text == expected
        assert usage.reuse.by_tier == {"device": 0, "host": 192}


def test_after_a_restart_kv_without_states_is_computed_again(config: EmbeddedConfig) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
    with running(config) as again:
        text, usage = ask(again, PROMPT)
        assert text == expected
        assert usage.reuse.reused == 0
        assert ask(again, PROMPT)[1].reuse.reused == 192


def test_a_flush_forgets_states_too(config: EmbeddedConfig) -> None:
    with running(config) as adapter:
        ask(adapter, PROMPT)
        assert adapter.engine.counters()["state_snapshots"] == 1
        asyncio.run(adapter.flush())
        assert adapter.engine.counters()["state_snapshots"] == 0
