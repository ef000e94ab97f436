"""Many requests at once over a device too small for them, with cancels, evictions and purges: answers stay the same."""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from cache_core.load_or_recompute import Plan
from cache_core.tiered import TieringOptions
from engine_adapters.base import GenerateRequest, SamplingParams, TextDelta, Usage
from engine_adapters.embedded import cold_tiers
from engine_adapters.embedded.adapter import EmbeddedAdapter
from engine_adapters.embedded.config import EmbeddedConfig
from tests.engine_adapters.embedded.engine_harness import random_tokens
from tests.engine_adapters.embedded.test_cold_tiers import config, running, settle

__all__ = ["config"]  # the fixture

STEMS = [random_tokens(130, seed) for seed in range(3)]
PROMPTS = [
    np.concatenate([STEMS[number % 3][: 70 + 6 * number], random_tokens(60, 100 + number)])
    for number in range(12)
]
Policy = Literal["write_through_on_second_hit", "write_back"]


def hits(adapter: EmbeddedAdapter) -> int:
    """Blocks that came up from below the device."""
    assert adapter.tiers is not None
    return sum(adapter.tiers.stats()[name].hits for name in ("host", "disk"))


async def answer(adapter: EmbeddedAdapter, number: int, name: str, patience: float | None) -> str | None:
    """The text for one prompt, with what it says it reused checked; None: it was cancelled."""
    params = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
    request = GenerateRequest(name, "completions", "tiny", PROMPTS[number], params, scope=f"s{number % 2}")
    text = ""

    async def read() -> None:
        nonlocal text
        async for event in adapter.generate(request):
            if isinstance(event, TextDelta):
                text += event.text
            elif isinstance(event, Usage):
                assert event.reuse.by_tier is not None
                assert sum(event.reuse.by_tier.values()) == event.reuse.reused
                assert min(event.reuse.by_tier.values()) >= 0

    try:
        await asyncio.wait_for(read(), patience)
    except TimeoutError:
        assert patience is not None
        return None
    return text


def rounds(shown: Callable[[], bool]) -> Iterator[int]:
    """Of a storm: six, and more until it has shown what it is for, as what it does depends on the machine, too."""
    for number in range(60):
        if number >= 6 and shown():
            return
        yield number


def loads_while_it_computes(adapter: EmbeddedAdapter, chance: random.Random) -> None:
    """Whatever is found is split anywhere into what is waited for, computed, and loaded meanwhile."""
    assert adapter.tiers is not None
    ask = adapter.tiers.ask

    def plan(sources: list[str], start: int, overlap: bool, ahead: Mapping[str, int], wait: float) -> Plan:
        n = len(sources)
        front, split = sorted(chance.choices(range(n + 1), k=2))
        if chance.random() < 0.3:
            front = split = n
        return Plan(front, split, n, 1.0, 2.0, 3.0)

    adapter.tiers._estimates.plan = plan  # type: ignore[method-assign, assignment]
    adapter.tiers.ask = lambda tokens, scope, alone: ask(tokens, scope, alone=True)  # type: ignore[method-assign, misc, assignment]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("policy", ["write_through_on_second_hit", "write_back"])
def test_whatever_moves_every_answer_is_that_of_a_fresh_engine(
    config: EmbeddedConfig, policy: Policy, together: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with running(replace(config, host_cache_bytes=0)) as plain:
        expected = [asyncio.run(answer(plain, number, f"p{number}", None)) for number in range(len(PROMPTS))]
    options = TieringOptions(write_policy=policy, reserve_blocks=4, layered=together)
    monkeypatch.setattr(cold_tiers, "TieringOptions", lambda *_, **__: options)
    small = replace(config, kv_bytes=40 * 12288, host_cache_bytes=60 * 12288)
    chance = random.Random(3)
    with running(small) as adapter:
        assert adapter.runner.num_blocks <= 64
        if together:
            loads_while_it_computes(adapter, chance)

        async def storm() -> None:
            for round_ in rounds(lambda: hits(adapter) > 0):
                asked = [chance.randrange(len(PROMPTS)) for _ in range(8)]
                patience = [chance.choice([None, None, 0.02, 0.1]) for _ in asked]
                answers = asyncio.gather(
                    *(
                        answer(adapter, number, f"r{round_}-{place}", patience[place])
                        for place, number in enumerate(asked)
                    )
                )
                await asyncio.sleep(chance.random() * 0.05)
                match chance.randrange(4):
                    case 0:
                        adapter.cache.flush()
                    case 1 if adapter.tiers is not None:
                        await asyncio.to_thread(adapter.tiers.purge, "s0")
                    case 2:
                        adapter.cache.evict(10)
                for number, text in zip(asked, await asyncio.wait_for(answers, 60), strict=True):
                    assert text in (None, expected[number])

        asyncio.run(storm())
        settle(adapter)
        stats = adapter.cache.stats()
        assert (stats.leases, stats.leased, stats.filling) == (0, 0, 0)
        assert adapter.tiers is not None
        adapter.tiers.host.check_integrity()
        assert hits(adapter) > 0
