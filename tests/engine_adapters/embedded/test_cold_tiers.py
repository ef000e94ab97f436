"""The embedded engine over device, host and disk: what cooled down is reused, and answers stay the same."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from cache_core.tiered import TieringOptions
from engine_adapters.base import GenerateRequest, SamplingParams, TextDelta, Usage
from engine_adapters.embedded import cold_tiers
from engine_adapters.embedded.adapter import EmbeddedAdapter
from engine_adapters.embedded.config import EmbeddedConfig, SchedulerLimits
from tests.cache_core.tiered.world import until
from tests.engine_adapters.embedded.engine_harness import random_tokens

PROMPT = random_tokens(200, 1)
ids = itertools.count()


@pytest.fixture
def config(tiny_model: Callable[[str], Path], tmp_path: Path) -> EmbeddedConfig:
    return EmbeddedConfig(
        model=str(tiny_model("llama")),
        device="cpu",
        kv_bytes=1 << 20,
        host_cache_bytes=8 << 20,
        disk_cache_dir=tmp_path / "kv",
        disk_cache_bytes=64 << 20,
        cache_dir=tmp_path / "cache",
    )


@contextmanager
def running(config: EmbeddedConfig) -> Iterator[EmbeddedAdapter]:
    """With tiers that are never late, where a test has not set its own options."""
    never_late = cold_tiers.TieringOptions
    if never_late is TieringOptions:
        never_late = partial(TieringOptions, fetch_deadline=3600.0, patience=3600.0)
    with patch.object(cold_tiers, "TieringOptions", never_late):
        adapter = EmbeddedAdapter.load(config, lambda _: None)
    adapter.tiers and adapter.tiers.computed([(0, 1000)], 3600.0)  # loading always pays
    try:
        yield adapter
    finally:
        asyncio.run(adapter.aclose())


async def answer(
    adapter: EmbeddedAdapter,
    tokens: np.ndarray,  # type: ignore[type-arg]
    max_tokens: int,
    scope: str = "default",
    choices: int = 1,
) -> tuple[str, Usage]:
    request = GenerateRequest(
        request_id=f"t{next(ids)}",
        route="completions",
        model="tiny",
        prompt_ids=tokens,
        sampling=SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, n=choices),
        scope=scope,
    )
    text, usage = "", None
    async for event in adapter.generate(request):
        if isinstance(event, TextDelta):
            text += event.text
        elif isinstance(event, Usage):
            usage = event
    assert usage is not None
    return text, usage


def ask(adapter: EmbeddedAdapter, tokens: np.ndarray, scope: str = "default") -> tuple[str, Usage]:  # type: ignore[type-arg]
    return asyncio.run(answer(adapter, tokens, 12, scope))


def settle(adapter: EmbeddedAdapter) -> None:
    """Wait until whoever was cancelled has left, and nothing moves."""
    tiers = adapter.tiers
    assert tiers is not None
    until(lambda: not adapter.engine.busy and tiers.idle)
    adapter.cache.check_integrity()


def warm(adapter: EmbeddedAdapter) -> str:
    """Ask twice, so that the prompt is written through."""
    text, _ = ask(adapter, PROMPT)
    ask(adapter, PROMPT)
    settle(adapter)
    return text


def test_a_prefix_that_left_the_device_is_reused_from_the_host_with_the_same_answer(
    config: EmbeddedConfig,
) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
        adapter.cache.flush()
        text, usage = ask(adapter, PROMPT)
        assert text == expected
        assert usage.reuse.by_tier == {"device": 0, "host": 192}
        assert usage.reuse.reused == 192


def test_a_prefix_survives_a_restart_on_disk_with_the_same_answer(config: EmbeddedConfig) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
    with running(config) as again:
        text, usage = ask(again, PROMPT)
        assert text == expected
        assert usage.reuse.by_tier == {"device": 0, "disk": 192}


def test_tiers_are_named_and_a_scope_is_forgotten_on_all_of_them(config: EmbeddedConfig) -> None:
    with running(config) as adapter:
        assert adapter.capabilities().tiers == ("device", "host", "disk")
        warm(adapter)
        assert adapter.tiers is not None
        assert adapter.tiers.purge("default").blocks > 0
        _, usage = ask(adapter, PROMPT)
        assert usage.reuse.reused == 0


def test_without_cold_tiers_nothing_is_kept_below_the_device(config: EmbeddedConfig) -> None:
    with running(replace(config, host_cache_bytes=0)) as adapter:
        assert adapter.capabilities().tiers == ("device",)
        ask(adapter, PROMPT)
        ask(adapter, PROMPT)
        adapter.cache.flush()
        _, usage = ask(adapter, PROMPT)
        assert usage.reuse.reused == 0


def test_what_came_up_and_was_evicted_before_its_turn_comes_up_again(config: EmbeddedConfig) -> None:
    """The device is emptied between the fetch and the admission, which a full batch holds up."""
    with running(replace(config, limits=SchedulerLimits(max_running=1))) as adapter:
        expected = warm(adapter)
        adapter.cache.flush()
        other = random_tokens(64, 9)

        async def both() -> tuple[str, Usage]:
            long = asyncio.ensure_future(answer(adapter, other, 900))
            await asyncio.to_thread(until, lambda: adapter.engine.counters()["running"] > 0)
            asked = asyncio.ensure_future(answer(adapter, PROMPT, 12))
            await asyncio.to_thread(until, lambda: adapter.cache.match(PROMPT) == 192)
            adapter.cache.flush()
            assert not asked.done()
            await long
            return await asked

        text, usage = asyncio.run(both())
        assert text == expected
        assert usage.reuse.by_tier == {"device": 0, "host": 192}


def test_who_waits_for_what_another_request_brings_up_counts_it_as_from_there(config: EmbeddedConfig) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
    with running(config) as again:

        async def two() -> list[tuple[str, Usage]]:
            return list(await asyncio.gather(*(answer(again, PROMPT, 12) for _ in range(2))))

        for text, usage in asyncio.run(two()):
            assert text == expected
            assert usage.reuse.by_tier == {"device": 0, "disk": 192}


def test_a_prompt_of_several_choices_is_used_once_and_copied_at_its_second_use_though_it_was_evicted(
    config: EmbeddedConfig,
) -> None:
    with running(config) as adapter:
        assert adapter.tiers is not None
        for choices, blocks in ((3, 0), (1, 192 // 16)):
            asyncio.run(answer(adapter, PROMPT, 1, choices=choices))
            settle(adapter)
            assert adapter.tiers.host.stats().blocks == blocks
            adapter.cache.flush()
        _, usage = ask(adapter, PROMPT)
        assert usage.reuse.by_tier is not None
        assert usage.reuse.by_tier["host"] == 192


@pytest.mark.parametrize(("share", "left"), [(0.25, True), (1.0, False)])
def test_a_scope_that_floods_every_tier_takes_nothing_from_one_within_its_share(
    config: EmbeddedConfig, share: float, left: bool
) -> None:
    config = replace(config, host_cache_bytes=1 << 20, disk_cache_bytes=1 << 20, scope_share=share)
    with running(config) as adapter:
        expected = warm(adapter)
        for seed in range(40):
            other = random_tokens(200, 100 + seed)
            ask(adapter, other, "loud")
            ask(adapter, other, "loud")
            settle(adapter)  # a block that is on its way to a slow disk cannot make room
        assert adapter.tiers is not None
        keys = [header.key for header in adapter.tiers._chains.headers("default", PROMPT[:192])]
        for name, tier in {"host": adapter.tiers.host, **adapter.tiers.colder}.items():
            assert (tier.stats().evicted or 0) > 0, f"{name} was not flooded"
            assert tier.contains(keys).all() == left, name
        assert ask(adapter, PROMPT)[0] == expected
