"""A real vLLM says what it holds: the router believes it, salts and evictions included."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine_adapters.remote.kv_event_stream import KvEventSource
from engine_adapters.remote.vllm import VllmEngine
from gateway.kv_events.follower import Follower
from gateway.routing.chain import PromptChain
from gateway.routing.kv_changes import seed_of
from gateway.routing.prefix_router import PrefixRouter
from tests.engines.asking import ask, prompt_ids
from tests.engines.running import free_port, running, vllm

pytestmark = pytest.mark.engines

BLOCKS = 40  # of 128 tokens, so that a few prompts push the first one out
FLAGS = (
    "--enable-prefix-caching",
    "--enable-prompt-tokens-details",
    "--num-gpu-blocks-override",
    str(BLOCKS),
)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110  there is nothing that tells
            await asyncio.sleep(0.02)


async def test_what_vllm_stores_is_known_and_what_it_evicts_is_not_expected_any_more(
    smollm2_folder: Path, tmp_path: Path
) -> None:
    port, replay = free_port(), free_port()
    events = {
        "enable_kv_cache_events": True, "publisher": "zmq", "topic": "kv",
        "endpoint": f"tcp://*:{port}", "replay_endpoint": f"tcp://*:{replay}",
    }  # fmt: skip
    router = PrefixRouter()
    source = KvEventSource(f"tcp://127.0.0.1:{port}", "kv", f"tcp://127.0.0.1:{replay}")
    follower = Follower("a", source, lambda changes: router.told("a", changes))

    def held(prompt: list[int], salt: str | None = None) -> int:
        chain = PromptChain(seed_of(salt), np.array(prompt, "<i4").tobytes())
        return router.index.matched(chain, ["a"])[0]

    with running(vllm(*FLAGS, events=json.dumps(events)), smollm2_folder, tmp_path / "log") as url:
        engine = VllmEngine("v", url, probe=False)
        early, later = prompt_ids(70, 300), prompt_ids(71, 300)
        await ask(engine, early)
        follower.start()
        await until(lambda: held(early) == 256)  # published before anybody listened
        await ask(engine, later, salt="tenant a")
        await until(lambda: held(later, "tenant a") == 256)
        assert held(later) == held(later, "tenant b") == 0
        for number in range(72, 76):
            await ask(engine, prompt_ids(number, 1500))
        await until(lambda: held(early) == 0)
        assert (await ask(engine, early)).account.reuse.reused == 0  # it was true
        newest = prompt_ids(75, 1500)
        expected = held(newest)
        reused = (await ask(engine, newest)).account.reuse.reused
        assert expected // 512 * 512 <= reused <= expected + 128
        await engine.flush()
        await ask(engine, prompt_ids(76, 300))  # vLLM publishes a flush with its next step
        await until(lambda: held(newest) == 0)
        await engine.aclose()
    await follower.aclose()
    assert follower.gaps == 0
