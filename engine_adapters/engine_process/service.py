"""The engine's side: what the process that runs it offers to others."""

from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from typing import Any, cast

from engine_adapters.base import EngineAdapter, Event, Tier
from engine_adapters.engine_process.wire import event_sent, ids_sent, request_read
from engine_adapters.rpc.connection import Connection
from engine_adapters.rpc.service import Call, Service


class EngineService:
    """Answers for one engine. `about`: facts that whoever connects is told beside its capabilities."""

    def __init__(self, engine: EngineAdapter, about: Mapping[str, Any]) -> None:
        self._engine = engine
        self._about = dict(about)

    def service(self) -> Service:
        """For a `Server`."""
        calls: dict[str, Call] = {
            "hello": self._hello,
            "tokenize": self._tokenize,
            "counters": self._counters,
            "health": self._health,
            "flush": self._flush,
            "purge": self._purge,
        }
        return Service(calls, {"generate": self._generate})

    def _hello(self, _: Connection) -> Any:
        return self._engine.capabilities(), self._about

    async def _generate(self, _: Connection, request: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        events = cast(AsyncGenerator[Event, None], self._engine.generate(request_read(request)))
        async with aclosing(events):  # a reader that goes cancels the request
            async for event in events:
                yield event_sent(event)

    async def _tokenize(self, _: Connection, text: str) -> bytes:
        return ids_sent(await self._engine.tokenize(text))

    async def _counters(self, _: Connection) -> Any:
        return dict(await self._engine.counters())

    async def _health(self, _: Connection) -> Any:
        health = await self._engine.health()
        return health.ready, health.detail, health.known

    async def _flush(self, _: Connection, tiers: list[Tier] | None) -> None:
        await self._engine.flush(cast("Collection[Tier] | None", tiers))

    async def _purge(self, _: Connection, scope: str) -> Any:
        purged = await self._engine.purge(scope)
        return purged.blocks, purged.pending
