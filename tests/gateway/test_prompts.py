"""Short prompts are made on the event loop, side by side; long ones do not hold it up."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from gateway.prompts import PromptThreads
from gateway.settings import GatewaySettings

SETTINGS = GatewaySettings()
SHORT, LONG = SETTINGS.inline_prompt_bytes, SETTINGS.inline_prompt_bytes + 1


@pytest.fixture
def threads() -> Iterator[PromptThreads]:
    made = PromptThreads(SETTINGS)
    yield made
    made.close()


async def test_requests_that_came_together_are_encoded_together(threads: PromptThreads) -> None:
    steps: list[str] = []

    async def request() -> None:
        steps.append("before")
        await threads.encode(SHORT, lambda: steps.append("encode"))

    await asyncio.gather(*(request() for _ in range(3)))
    assert steps == ["before"] * 3 + ["encode"] * 3


async def test_long_prompts_are_made_elsewhere(threads: PromptThreads) -> None:
    async def thread_of(size: int) -> int:
        return await threads.encode(size, threading.get_ident)

    assert await thread_of(SHORT) == threading.get_ident()
    assert await thread_of(LONG) != threading.get_ident()


@pytest.mark.parametrize("size", [SHORT, LONG])
async def test_what_goes_wrong_is_raised_to_whoever_asked(threads: PromptThreads, size: int) -> None:
    def fails() -> None:
        raise ValueError("wrong")

    good, bad = await asyncio.gather(
        threads.encode(size, lambda: 1), threads.encode(size, fails), return_exceptions=True
    )
    assert good == 1
    assert isinstance(bad, ValueError)


async def test_a_prompt_that_nobody_waits_for_any_more_is_not_made(threads: PromptThreads) -> None:
    made: list[int] = []
    task = asyncio.create_task(threads.encode(SHORT, lambda: made.append(1)))
    await asyncio.sleep(0)  # it has begun
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert made == []
