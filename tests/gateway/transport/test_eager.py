"""Work that need not wait gets no timer; work that waits for too long is ended, and so is work of who leaves."""

import asyncio

import pytest

from gateway.transport.eager import within


async def test_work_that_need_not_wait_is_done_at_once() -> None:
    async def work() -> int:
        return 3

    assert await within(0, work()) == 3


async def test_work_that_waits_gets_its_result_and_its_errors() -> None:
    async def work(fails: bool) -> str:
        for _ in range(3):
            await asyncio.sleep(0.001)
        if fails:
            raise KeyError("x")
        return "done"

    assert await within(5, work(fails=False)) == "done"
    with pytest.raises(KeyError):
        await within(5, work(fails=True))


async def test_what_takes_too_long_is_cancelled() -> None:
    cleaned = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    with pytest.raises(TimeoutError):
        await within(0.01, work())
    assert cleaned == [True]


async def test_a_cancellation_from_outside_stays_one() -> None:
    event = asyncio.Event()
    task = asyncio.create_task(within(5, event.wait()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_work_may_catch_an_error_and_go_on() -> None:
    async def work() -> str:
        try:
            async with asyncio.timeout(0.005):
                await asyncio.Event().wait()
        except TimeoutError:
            await asyncio.sleep(0.001)
        return "went on"

    assert await within(5, work()) == "went on"


async def test_what_is_no_coroutine_is_awaited_too() -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, 1)
    assert await within(5, future) == 1
