"""Every fact about SGLang, on exchanges that were recorded with the real server."""

from collections.abc import Awaitable, Callable

import pytest

from engine_adapters.remote.sglang import SGLangEngine
from tests.engines.sglang_facts import BARE_FACTS, FACTS
from tests.engines.sglang_native_facts import NATIVE_BARE_FACTS, NATIVE_FACTS
from tests.exchanges import Recording, Replay, served

Fact = Callable[[SGLangEngine], Awaitable[None]]


async def replayed(recording: str, fact: Fact) -> None:
    exchanges = Recording.read(recording).facts[fact.__name__]
    with served(Replay(exchanges)) as url:
        engine = SGLangEngine("replayed", url)
        try:
            await fact(engine)
        finally:
            await engine.aclose()


@pytest.mark.parametrize("fact", [*FACTS, *NATIVE_FACTS], ids=lambda fact: fact.__name__)
async def test_with_its_flags(fact: Fact) -> None:
    await replayed("sglang", fact)


@pytest.mark.parametrize("fact", [*BARE_FACTS, *NATIVE_BARE_FACTS], ids=lambda fact: fact.__name__)
async def test_without_its_flags(fact: Fact) -> None:
    await replayed("sglang_bare", fact)
