"""Work of requests that came together, done side by side: the first step of each, then the second of each."""

import asyncio
from typing import Any, TypeVar

from canon.tokens.steps import Steps

Result = TypeVar("Result")


class SideBySide:
    """Used from one event loop."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Steps[Any], asyncio.Future[Any]]] = []

    def do(self, steps: Steps[Result]) -> "asyncio.Future[Result]":
        """What comes of `steps`, which are taken when all that is ready now has run. Cancelled: they are not."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Result] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._go)
        self._waiting.append((steps, result))
        return result

    def _go(self) -> None:
        waiting, self._waiting = self._waiting, []
        while waiting:
            waiting = [each for each in waiting if _goes_on(*each)]


def _goes_on(steps: Steps[Any], result: "asyncio.Future[Any]") -> bool:
    """Take a step; whether there is another one."""
    if result.cancelled():
        steps.close()
        return False
    try:
        next(steps)
    except StopIteration as done:
        result.set_result(done.value)
    except Exception as error:  # noqa: BLE001  it is for the one who waits
        result.set_exception(error)
    else:
        return True
    return False
