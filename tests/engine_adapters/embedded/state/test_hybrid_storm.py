"""A hybrid model over tiers too small for its prompts, with cancels, evictions, purges: answers stay the same."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from cache_core.tiered import TieringOptions
from engine_adapters.embedded import cold_tiers
from engine_adapters.embedded.adapter import EmbeddedAdapter
from tests.engine_adapters.embedded.state.test_hybrid_tiers import config_of
from tests.engine_adapters.embedded.test_cold_tier_storm import PROMPTS, Policy, answer, rounds
from tests.engine_adapters.embedded.test_cold_tiers import running, settle
from tests.tiny_hybrids import HYBRIDS, Hybrid


def brought_up(adapter: EmbeddedAdapter) -> float:
    assert adapter.tiers is not None
    assert adapter.tiers.states is not None
    return adapter.tiers.states.counters()["states_brought_up"]


async def disturb(adapter: EmbeddedAdapter, what: int) -> None:
    assert adapter.tiers is not None
    assert adapter.states is not None
    match what:
        case 0:
            adapter.cache.flush()
        case 1:
            await asyncio.to_thread(adapter.tiers.purge, "s0")
        case 2:
            adapter.cache.evict(10)
        case 3:
            adapter.states.store.flush()
        case 4:
            await adapter.flush(("host",))


@pytest.mark.parametrize("policy", ["write_through_on_second_hit", "write_back"])
@pytest.mark.parametrize("arch", HYBRIDS)
def test_whatever_moves_every_answer_is_that_of_a_fresh_engine(
    arch: Hybrid, policy: Policy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = config_of(arch, tmp_path)
    with running(replace(config, host_cache_bytes=0)) as plain:
        expected = [asyncio.run(answer(plain, number, f"p{number}", None)) for number in range(len(PROMPTS))]
        block = plain.runner.kv.bytes_per_block
    options = TieringOptions(write_policy=policy, reserve_blocks=4)
    monkeypatch.setattr(cold_tiers, "TieringOptions", lambda *_, **__: options)
    chance = random.Random(3)
    small = replace(config, kv_bytes=50 * block, host_cache_bytes=80 * block)
    with running(small) as adapter:
        assert adapter.runner.num_blocks <= 64
        assert adapter.states is not None
        adapter.states.store._room = 5

        async def storm() -> None:
            for round_ in rounds(lambda: brought_up(adapter) > 0):
                asked = [chance.randrange(len(PROMPTS)) for _ in range(8)]
                patience = [chance.choice([None, None, 0.02, 0.1]) for _ in asked]
                answers = asyncio.gather(
                    *(
                        answer(adapter, number, f"r{round_}-{place}", patience[place])
                        for place, number in enumerate(asked)
                    )
                )
                await asyncio.sleep(chance.random() * 0.05)
                await disturb(adapter, chance.randrange(6))
                for number, text in zip(asked, await asyncio.wait_for(answers, 60), strict=True):
                    assert text in (None, expected[number])

        asyncio.run(storm())
        settle(adapter)
        stats = adapter.cache.stats()
        assert (stats.leases, stats.leased, stats.filling) == (0, 0, 0)
        assert adapter.tiers is not None
        assert adapter.tiers.states is not None
        adapter.tiers.host.check_integrity()
        adapter.tiers.states.rows.check_integrity()
        assert brought_up(adapter) > 0
