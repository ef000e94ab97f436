"""Run the engine requests of one API request, and never outlive it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from engine_adapters.base import EngineAdapter, Event, Finished, GenerateRequest, Usage
from engine_adapters.errors import EngineFailureError
from gateway.settings import GatewaySettings

log = logging.getLogger("kvgate.gateway")

Tagged = tuple[int, Event]  # (which engine request, its event)


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception


class Generation:
    """`async with Generation(engine, requests, settings) as run:` and then `run.batch()` until it is None.

    Leaving the block, however it is left, closes every engine stream. Events wait in a bounded queue, so a
    reader that is slow slows the engine's streams and grows no memory.
    """

    def __init__(
        self, engine: EngineAdapter, requests: Sequence[GenerateRequest], settings: GatewaySettings
    ) -> None:
        self._engine = engine
        self._requests = requests
        self._settings = settings
        self._queue: asyncio.Queue[Tagged | _Failed | None] = asyncio.Queue(settings.max_queued_events)
        self._slots = asyncio.Semaphore(settings.prompts_at_once)
        self._error: Exception | None = None
        self._running = 0

    async def __aenter__(self) -> Self:
        self._running = len(self._requests)
        self._tasks = [
            asyncio.create_task(self._pump(source, request)) for source, request in enumerate(self._requests)
        ]
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        _, stuck = await asyncio.wait(self._tasks, timeout=self._settings.cancel_wait_s)
        if stuck:
            ids = [request.request_id for request in self._requests]
            log.error("the engine does not let go of a cancelled request", extra={"fields": {"ids": ids}})

    async def batch(self, timeout_s: float | None = None) -> list[Tagged] | None:
        """Every event that is there, waiting for the first; empty after `timeout_s`, None after the last.

        Raises what the engine raised, after all events that came before it.
        """
        events: list[Tagged] = []
        try:
            async with asyncio.timeout(timeout_s):
                while not events and self._error is None and not self._ended():
                    self._take(await self._queue.get(), events)
        except TimeoutError:
            return []
        while self._error is None and not self._queue.empty():
            self._take(self._queue.get_nowait(), events)
        if events:
            return events
        if self._error is not None:
            raise self._error
        return None

    def _ended(self) -> bool:
        return self._running == 0 and self._queue.empty()

    def _take(self, item: Tagged | _Failed | None, events: list[Tagged]) -> None:
        if item is None:
            self._running -= 1
        elif isinstance(item, _Failed):
            self._error = item.error
        else:
            events.append(item)

    async def _pump(self, source: int, request: GenerateRequest) -> None:
        try:
            async with self._slots, _closing(self._engine.generate(request)) as events:
                await self._forward(source, request, events)
        except Exception as error:  # noqa: BLE001  whatever it is, it is raised again by batch()
            await self._queue.put(_Failed(error))
        else:
            await self._queue.put(None)

    async def _forward(self, source: int, request: GenerateRequest, events: AsyncIterator[Event]) -> None:
        unfinished = set(range(request.sampling.n))
        complete = False
        async for event in events:
            if isinstance(event, Usage):
                complete = True
            elif event.index not in unfinished:
                raise EngineFailureError(f"an event came for choice {event.index}, which is not running")
            elif isinstance(event, Finished):
                unfinished.discard(event.index)
            await self._queue.put((source, event))
        if unfinished or not complete:
            raise EngineFailureError("the engine's stream ended before the request was finished")


@asynccontextmanager
async def _closing(events: AsyncIterator[Event]) -> AsyncIterator[AsyncIterator[Event]]:
    """Close a stream that can be closed, at once and not when it is collected as garbage."""
    try:
        yield events
    finally:
        aclose = getattr(events, "aclose", None)
        if aclose is not None:
            await aclose()
