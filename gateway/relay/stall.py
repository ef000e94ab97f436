"""An engine that stops in the middle of an answer, noticed without a timer for each piece of it."""

import asyncio
from types import TracebackType
from typing import Self

from engine_adapters.errors import EngineTimeoutError

_MOMENT_S = 0.05  # in which a loop that goes on reads what came while it was held up


class StallGuard:
    """`async with StallGuard(seconds) as guard:` ends its block where the engine sends nothing for so long.

    Or at most half as long again. Only time in which `waiting` counts, and not what clients take, nor what holds up
    the event loop while the engine's bytes wait to be read. It leaves the block as EngineTimeoutError.
    """

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._loop = asyncio.get_running_loop()
        self._limit = asyncio.timeout(None)
        self._since: float | None = None
        self._suspected: float | None = None  # a time since when nothing has come, seen once

    def waiting(self) -> None:
        """For the engine, from now on."""
        self._since = self._loop.time()

    def busy(self) -> None:
        """With what has come."""
        self._since = None

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        self.waiting()
        self._look_in(self._stall_s / 2)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        try:
            await self._limit.__aexit__(kind, raised, traceback)
        except TimeoutError:
            raise EngineTimeoutError(
                f"The engine sent nothing for {self._stall_s:g} s in the middle of an answer."
            ) from raised

    def _look_in(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        since = self._since
        if since is None or self._loop.time() - since < self._stall_s:
            self._look_in(self._stall_s / 2)
        elif since != self._suspected:  # timers of a loop that was held up come before what it has to read
            self._suspected = since
            self._look_in(_MOMENT_S)
        else:
            self._limit.reschedule(self._loop.time())
