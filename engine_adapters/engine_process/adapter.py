"""The gateway's side: an engine in another process behind the interface that all engines share."""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine_adapters.base import Capabilities, EngineAdapter, Event, GenerateRequest, Health, Purged, Tier
from engine_adapters.engine_process.wire import capabilities_read, event_read, ids_read, request_sent
from engine_adapters.errors import EngineFailureError, EngineNotReadyError
from engine_adapters.rpc.connection import Connection
from engine_adapters.rpc.errors import AwayError, FailedError
from engine_adapters.rpc.link import Link

_HEALTH_S = 2.0
_AWAY = "the engine's process has ended and is started again"
_GONE = "The engine's process has ended while it worked on this request."


class EngineInProcess(EngineAdapter):
    """Made with `connect`; used from that event loop."""

    def __init__(self, path: Path) -> None:
        self._link = Link(str(path), "the engine", self._greet)
        self._capabilities: Capabilities | None = None
        self._closed = False
        self.about: Mapping[str, Any] = {}  # what the engine's process says of itself

    @classmethod
    async def connect(cls, path: Path, timeout_s: float | None = None) -> "EngineInProcess":
        """Wait until the engine is there; raises EngineNotReadyError where it is not by then."""
        engine = cls(path)
        try:
            engine._link.start()
            await engine._link.there(timeout_s)
        except AwayError as error:
            await engine._link.aclose()
            raise EngineNotReadyError(str(error)) from error
        return engine

    async def _greet(self, connection: Connection) -> None:
        able, self.about = await connection.call("hello")
        self._capabilities = capabilities_read(able)

    def capabilities(self) -> Capabilities:
        if self._capabilities is None:
            raise EngineNotReadyError("the engine's process is not there yet")
        return self._capabilities

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Event]:
        connection = self._connection()
        # Who says what became of chats as ids takes some as messages.
        whole = request.route == "chat" and self.capabilities().chats_as_ids is not None
        try:
            sent = request_sent(request, body=whole)
            async with aclosing(connection.stream("generate", sent)) as batches:
                async for batch in batches:
                    for each in batch:
                        yield event_read(each)
        except AwayError as error:
            if self._closed:
                raise EngineNotReadyError("the server is shutting down") from error
            raise EngineFailureError(_GONE) from error
        except FailedError as error:
            raise EngineFailureError("The engine failed while it worked on this request.") from error

    async def tokenize(self, text: str) -> NDArray[np.int32]:
        return ids_read(await self._ask("tokenize", text))

    async def counters(self) -> Mapping[str, float]:
        found: Mapping[str, float] = await self._ask("counters")
        return found

    async def health(self) -> Health:
        if not self._link.is_there:
            return Health(False, _AWAY)
        try:
            ready, detail, known = await self._link.call("health", timeout_s=_HEALTH_S)
        except (AwayError, FailedError) as error:
            return Health(False, f"the engine's process does not answer: {error}")
        return Health(ready, detail, known)

    async def flush(self, tiers: Collection[Tier] | None = None) -> None:
        await self._ask("flush", None if tiers is None else list(tiers), timeout_s=None)

    async def purge(self, scope: str) -> Purged:
        blocks, pending = await self._ask("purge", scope, timeout_s=None)
        return Purged(blocks, tuple(pending))

    async def aclose(self) -> None:
        """Leave the engine to others; what runs here ends with EngineNotReadyError, and is cancelled there."""
        self._closed = True
        await self._link.aclose()

    async def _ask(self, name: str, *args: Any, timeout_s: float | None = 30.0) -> Any:
        connection = self._connection()
        try:
            return await connection.call(name, *args, timeout_s=timeout_s)
        except (AwayError, FailedError) as error:
            raise EngineFailureError(f"The engine's process did not answer: {error}.") from error

    def _connection(self) -> Connection:
        try:
            return self._link.connection
        except AwayError as error:
            raise EngineNotReadyError(_AWAY) from error
