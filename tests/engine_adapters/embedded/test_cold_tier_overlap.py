"""Parts of a prefix come up while others are computed: answers stay the same, and what was loaded is not computed."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
import torch

from cache_core.load_or_recompute import Plan
from cache_core.tiered import OwnLoad
from engine_adapters.base import GenerateRequest, SamplingParams, Usage
from engine_adapters.embedded.adapter import EmbeddedAdapter
from engine_adapters.embedded.config import EmbeddedConfig
from engine_adapters.embedded.model_runner import Segment
from tests.engine_adapters.embedded.engine_harness import WAIT, random_tokens
from tests.engine_adapters.embedded.test_cold_tier_faults import nothing_held
from tests.engine_adapters.embedded.test_cold_tiers import PROMPT, answer, ask, config, running, settle, warm
from tests.waiting import until

__all__ = ["config"]  # the fixture

BLOCKS = 12  # whole ones in the prompt


def decides(adapter: EmbeddedAdapter, split: int) -> None:
    """Blocks from `split` on are loaded while those before them are computed."""

    def plan(sources: list[str], start: int, overlap: bool, ahead: Mapping[str, int], wait: float) -> Plan:
        n = len(sources)
        return Plan(0, min(split, n), n, 1.0, 2.0, 3.0) if overlap else Plan(n, n, n, 1.0, 1.0, 3.0)

    assert adapter.tiers is not None
    adapter.tiers._estimates.plan = plan  # type: ignore[method-assign, assignment]


class Steps:
    """What went through the model since."""

    def __init__(self, adapter: EmbeddedAdapter) -> None:
        self.steps: list[list[Segment]] = []
        forward = adapter.runner.forward

        def watched(segments: Sequence[Segment]) -> torch.Tensor:
            self.steps.append(list(segments))
            return forward(segments)

        adapter.runner.forward = watched  # type: ignore[method-assign]

    @property
    def segments(self) -> list[Segment]:
        return [segment for step in self.steps for segment in step]

    @property
    def prefilled(self) -> int:
        return sum(segment.size for segment in self.segments if segment.past < len(PROMPT))


@pytest.mark.parametrize("split", [0, 1, 7, 11])
def test_only_what_is_not_loaded_is_computed_and_the_answer_is_the_same(
    config: EmbeddedConfig, split: int
) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
        adapter.cache.flush()
        decides(adapter, split)
        steps = Steps(adapter)
        text, usage = ask(adapter, PROMPT)
        assert text == expected
        assert usage.reuse.by_tier == {"device": 0, "host": (BLOCKS - split) * 16}
        assert usage.reuse.reused == (BLOCKS - split) * 16
        assert steps.prefilled == len(PROMPT) - (BLOCKS - split) * 16
        settle(adapter)
        assert nothing_held(adapter)
        assert ask(adapter, PROMPT)[1].reuse.by_tier == {"device": BLOCKS * 16}


@pytest.mark.parametrize("split", [0, 3, 9])
def test_from_disk_too(config: EmbeddedConfig, split: int) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
    with running(config) as again:
        decides(again, split)
        text, usage = ask(again, PROMPT)
        assert text == expected
        assert usage.reuse.by_tier is not None
        assert sum(usage.reuse.by_tier.values()) == usage.reuse.reused
        settle(again)
        assert nothing_held(again)


def test_requests_with_the_same_prefix_compute_and_load_it_once(config: EmbeddedConfig) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
        adapter.cache.flush()
        decides(adapter, 5)
        steps = Steps(adapter)

        async def three() -> list[tuple[str, Usage]]:
            return list(await asyncio.gather(*(answer(adapter, PROMPT, 12) for _ in range(3))))

        answers = asyncio.run(three())
        assert [text for text, _ in answers] == [expected] * 3
        # The first one computes the front and the last tokens, the others the last tokens alone.
        assert steps.prefilled <= 5 * 16 + 3 * (len(PROMPT) - BLOCKS * 16)


def test_who_is_cancelled_meanwhile_leaves_nothing_and_others_go_on(
    config: EmbeddedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
        adapter.cache.flush()
        decides(adapter, 5)
        write, go, reached = adapter.runner.kv.write_blocks, Event(), Event()

        def slowly(*args: Any, **keywords: Any) -> None:
            reached.set()
            go.wait(WAIT)
            write(*args, **keywords)

        monkeypatch.setattr(adapter.runner.kv, "write_blocks", slowly)

        async def cancelled() -> tuple[str, Usage]:
            params = SamplingParams(temperature=0.0, max_tokens=4)
            request = GenerateRequest("gone", "completions", "tiny", PROMPT, params, scope="default")
            stream = adapter.generate(request)
            first = asyncio.ensure_future(anext(stream))
            await asyncio.to_thread(reached.wait, WAIT)
            other = asyncio.ensure_future(answer(adapter, PROMPT, 12))
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await stream.aclose()  # type: ignore[attr-defined]
            go.set()
            return await other

        text, _ = asyncio.run(cancelled())
        assert text == expected
        settle(adapter)
        assert nothing_held(adapter)


@pytest.fixture
def layered(config: EmbeddedConfig) -> EmbeddedConfig:
    """As where an accelerator is."""
    return replace(config, layered_loads=True)


def test_layers_are_computed_while_later_ones_come_up(layered: EmbeddedConfig) -> None:
    with running(layered) as adapter:
        expected = warm(adapter)
        adapter.cache.flush()
        steps = Steps(adapter)
        text, usage = ask(adapter, PROMPT)
        assert text == expected
        assert usage.reuse.by_tier == {"device": 0, "host": BLOCKS * 16}
        assert steps.prefilled == len(PROMPT) - BLOCKS * 16
        settle(adapter)
        assert nothing_held(adapter)


def test_a_request_begins_before_its_last_layer_is_there(
    layered: EmbeddedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transfer ends only after a layer was waited for by attention: had the step waited for it, both would hang."""
    with running(layered) as adapter:
        expected = warm(adapter)
        adapter.cache.flush()
        begun = Event()
        wait_layer, write = OwnLoad.wait_layer, adapter.runner.kv.write_blocks

        def begins(load: OwnLoad, layer: int) -> bool:
            begun.set()
            return wait_layer(load, layer)

        def after_that(*args: Any, **keywords: Any) -> None:
            assert begun.wait(WAIT)
            write(*args, **keywords)

        monkeypatch.setattr(OwnLoad, "wait_layer", begins)
        monkeypatch.setattr(adapter.runner.kv, "write_blocks", after_that)
        text, usage = ask(adapter, PROMPT)
        assert text == expected
        assert usage.reuse.by_tier == {"device": 0, "host": BLOCKS * 16}


def test_a_layer_that_does_not_come_is_recomputed_with_all_others(
    layered: EmbeddedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(layered) as adapter:
        expected = warm(adapter)
        adapter.cache.flush()
        begun = Event()
        wait_layer = OwnLoad.wait_layer

        def begins(load: OwnLoad, layer: int) -> bool:
            begun.set()
            return wait_layer(load, layer)

        def breaks(*_: Any, **__: Any) -> None:
            assert begun.wait(WAIT)
            raise RuntimeError("broken")

        monkeypatch.setattr(OwnLoad, "wait_layer", begins)
        monkeypatch.setattr(adapter.runner.kv, "write_blocks", breaks)
        steps = Steps(adapter)
        text, usage = ask(adapter, PROMPT)
        assert text == expected
        assert usage.reuse.reused == 0
        assert steps.segments[0].arrival is not None  # it was begun, and thrown away
        settle(adapter)
        assert nothing_held(adapter)


def test_while_others_run_nobody_waits_for_layers(layered: EmbeddedConfig) -> None:
    with running(layered) as adapter:
        expected = warm(adapter)
        adapter.cache.flush()
        steps = Steps(adapter)

        async def beside() -> tuple[str, Usage]:
            other = asyncio.ensure_future(answer(adapter, random_tokens(40, 8), 400))
            await until(lambda: adapter.engine.counters()["running"] > 0, "it runs")
            result = await answer(adapter, PROMPT, 12)
            await other
            return result

        text, usage = asyncio.run(beside())
        assert text == expected
        assert usage.reuse.reused == BLOCKS * 16
        assert all(len(step) == 1 for step in steps.steps if any(segment.arrival for segment in step))
