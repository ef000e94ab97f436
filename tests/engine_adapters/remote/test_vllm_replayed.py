"""Every fact about vLLM, on exchanges that were recorded with the real server."""

from collections.abc import Awaitable, Callable

import pytest

from engine_adapters.remote.vllm import VllmEngine
from tests.engines.vllm_facts import BARE_FACTS, FACTS, STORE_FACTS
from tests.exchanges import Recording, Replay, served

Fact = Callable[[VllmEngine], Awaitable[None]]


async def replayed(recording: str, fact: Fact) -> None:
    exchanges = Recording.read(recording).facts[fact.__name__]
    with served(Replay(exchanges)) as url:
        engine = VllmEngine("replayed", url)
        try:
            await fact(engine)
        finally:
            await engine.aclose()


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
async def test_with_its_flags(fact: Fact) -> None:
    await replayed("vllm", fact)


@pytest.mark.parametrize("fact", BARE_FACTS, ids=lambda fact: fact.__name__)
async def test_without_its_flags(fact: Fact) -> None:
    await replayed("vllm_bare", fact)


@pytest.mark.parametrize("fact", STORE_FACTS, ids=lambda fact: fact.__name__)
async def test_with_lmcache_behind_it(fact: Fact) -> None:
    await replayed("vllm_lmcache", fact)
