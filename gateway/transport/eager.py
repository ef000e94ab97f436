"""Bounds in time for what mostly need not wait: a timer is made only where it does."""

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from types import CoroutineType
from typing import Any, TypeVar

Result = TypeVar("Result")


async def within(seconds: float, work: Awaitable[Result]) -> Result:
    """What `await work` gives; raises TimeoutError when it takes longer than `seconds`."""
    if type(work) is not CoroutineType and not isinstance(work, Coroutine):
        async with asyncio.timeout(seconds):
            return await work
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        result: Result = done.value
        return result
    async with asyncio.timeout(seconds):
        return await _Rest(work, waits_for)


class _Rest(Awaitable[Result]):
    """A coroutine that was begun already and waits for something, to be awaited like any other."""

    def __init__(self, work: Coroutine[Any, Any, Result], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Result]:
        work, waits_for = self._work, self._waits_for
        try:
            while True:
                try:
                    sent = yield waits_for
                except BaseException as error:  # noqa: BLE001  a cancellation is for the one who waits, too
                    waits_for = work.throw(error)
                else:
                    waits_for = work.send(sent)
        except StopIteration as done:
            result: Result = done.value
            return result
        finally:
            work.close()
