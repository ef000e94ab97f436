"""From the engine's thread to the event loop that waits for a request."""

import asyncio
from collections import deque

from engine_adapters.embedded.job import Done, Output
from engine_adapters.errors import EngineError


class Inbox:
    """Carries what the engine's thread gives out to the event loop, in order. Bounded by the request's max_tokens."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: deque[Output | Done | EngineError] = deque()
        self._filled = asyncio.Event()

    def put(self, item: Output | Done | EngineError) -> None:
        """Called on the engine's thread."""
        self._items.append(item)
        try:
            self._loop.call_soon_threadsafe(self._filled.set)
        except RuntimeError:  # the loop has closed; nobody reads any more
            self._items.clear()

    async def take(self) -> list[Output | Done | EngineError]:
        """Everything that has come since the last call; waits for at least one."""
        while not self._items:
            self._filled.clear()
            if not self._items:
                await self._filled.wait()
        taken = []
        while self._items:
            taken.append(self._items.popleft())
        return taken
