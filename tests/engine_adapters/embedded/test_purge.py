"""The embedded engine forgets a scope, or everything, on the tiers it is told to: at once, and states too."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine_adapters.base import (
    Capabilities,
    EngineAdapter,
    Event,
    GenerateRequest,
    Health,
    Purged,
    Tier,
)
from engine_adapters.embedded.adapter import EmbeddedAdapter
from engine_adapters.embedded.config import EmbeddedConfig
from engine_adapters.errors import EngineFailureError, UnsupportedByEngineError
from tests.cache_core.tiered.world import until
from tests.engine_adapters.embedded.engine_harness import random_tokens
from tests.engine_adapters.embedded.test_cold_tiers import (
    PROMPT,
    answer,
    ask,
    config,
    running,
    settle,
    warm,
)
from tests.tiny_hybrids import save_tiny_hybrid

__all__ = ["config"]  # the fixture


def test_a_purged_scope_is_gone_on_every_tier_and_others_stay(config: EmbeddedConfig) -> None:
    with running(config) as adapter:
        warm(adapter)
        ask(adapter, PROMPT, "other")
        purged = asyncio.run(adapter.purge("default"))
        assert purged.pending == ()
        assert purged.blocks is not None
        assert purged.blocks >= 3 * 12
        assert ask(adapter, PROMPT, "other")[1].reuse.reused == 192
        assert ask(adapter, PROMPT)[1].reuse.reused == 0
    with running(config) as again:
        assert ask(again, PROMPT)[1].reuse.reused == 0


def test_a_scope_is_purged_where_there_is_only_the_device(config: EmbeddedConfig) -> None:
    with running(replace(config, host_cache_bytes=0)) as adapter:
        ask(adapter, PROMPT)
        assert asyncio.run(adapter.purge("default")) == Purged(13)
        assert asyncio.run(adapter.purge("default")) == Purged(0)
        assert ask(adapter, PROMPT)[1].reuse.reused == 0


def test_what_a_request_computes_while_its_scope_is_purged_is_for_itself_alone(
    config: EmbeddedConfig,
) -> None:
    with running(config) as adapter:
        expected, _ = asyncio.run(answer(adapter, PROMPT, 900))
        asyncio.run(adapter.flush())

        async def purge_in_the_middle() -> str:
            asked = asyncio.ensure_future(answer(adapter, PROMPT, 900))
            await asyncio.to_thread(until, lambda: adapter.cache.match(PROMPT) == 192)
            assert not asked.done()
            await adapter.purge("default")
            return (await asked)[0]

        assert asyncio.run(purge_in_the_middle()) == expected
        settle(adapter)
        assert adapter.cache.match(PROMPT) == 0
        assert ask(adapter, PROMPT)[1].reuse.reused == 0


def test_bytes_that_cannot_be_erased_are_an_error(
    config: EmbeddedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(config) as adapter:
        warm(adapter)
        assert adapter.tiers is not None
        monkeypatch.setattr(adapter.tiers.colder["disk"], "purge", _fails)
        with pytest.raises(EngineFailureError, match="the disk is broken"):
            asyncio.run(adapter.purge("default"))
        assert ask(adapter, PROMPT)[1].reuse.by_tier != {"device": 0, "host": 192}


def _fails(_: bytes) -> int:
    raise OSError("the disk is broken")


@pytest.mark.parametrize(
    ("tiers", "left"),
    [
        (None, {"device": 0}),
        (("device",), {"device": 0, "host": 192}),
        (("device", "host"), {"device": 0, "disk": 192}),
        (("host", "disk"), {"device": 192}),
    ],
)
def test_a_flush_empties_the_tiers_it_names_or_all(
    config: EmbeddedConfig, tiers: tuple[Tier, ...] | None, left: Mapping[Tier, int]
) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
        asyncio.run(adapter.flush(tiers))
        text, usage = ask(adapter, PROMPT)
        assert text == expected
        assert usage.reuse.by_tier == left


def hybrid(config: EmbeddedConfig, folder: Path) -> EmbeddedConfig:
    return replace(config, model=str(save_tiny_hybrid("falcon_h1", folder / "hybrid")))


def snapshots(adapter: EmbeddedAdapter) -> float:
    return adapter.engine.counters()["state_snapshots"]


@pytest.mark.parametrize("host", [0, 8 << 20])
def test_states_of_a_hybrid_model_are_purged_with_their_scope(
    config: EmbeddedConfig, tmp_path: Path, host: int
) -> None:
    with running(replace(hybrid(config, tmp_path), host_cache_bytes=host)) as adapter:
        ask(adapter, PROMPT)
        ask(adapter, PROMPT, "other")
        assert snapshots(adapter) == 2
        asyncio.run(adapter.purge("default"))
        assert snapshots(adapter) == 1
        assert ask(adapter, PROMPT, "other")[1].reuse.reused == 192
        assert ask(adapter, PROMPT)[1].reuse.reused == 0


def test_a_step_under_way_leaves_no_state_of_a_purged_scope(config: EmbeddedConfig, tmp_path: Path) -> None:
    """The purge comes between the forward pass of a prompt's last chunk and the copy of its state."""
    with running(replace(hybrid(config, tmp_path), host_cache_bytes=0)) as adapter:
        keep, states = EmbeddedAdapter._purge, adapter.states
        assert states is not None
        original, purged = states.keep, []

        def late(*args: object) -> None:
            if not purged:
                purged.append(keep(adapter, "default"))
            original(*args)  # type: ignore[arg-type]

        states.keep = late  # type: ignore[method-assign]
        ask(adapter, PROMPT)
        assert purged
        until(lambda: not adapter.engine.busy)
        ask(adapter, random_tokens(20, 4), "other")  # the engine has been between two steps since
        assert states.store.deepest(PROMPT, "default", 192) == 0


class Remote(EngineAdapter):
    """Only what an adapter must have."""

    def capabilities(self) -> Capabilities:
        return Capabilities("m", 10, False, None, False)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Event]:
        return
        yield

    async def tokenize(self, text: str) -> NDArray[np.int32]:
        return np.empty(0, dtype=np.int32)

    async def counters(self) -> Mapping[str, float]:
        return {}

    async def health(self) -> Health:
        return Health(True, "ready")

    async def flush(self, tiers: Collection[Tier] | None = None) -> None:
        return None

    async def aclose(self) -> None:
        return None


def test_an_engine_that_cannot_forget_one_scope_says_so_and_what_to_do() -> None:
    with pytest.raises(UnsupportedByEngineError, match="Remote cannot forget one scope: flush"):
        asyncio.run(Remote().purge("default"))
