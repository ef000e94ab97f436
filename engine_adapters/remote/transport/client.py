"""Requests to one engine over connections that are kept."""

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

from engine_adapters.remote.transport.connection import Connection
from engine_adapters.remote.transport.errors import (
    NoConnectionError,
    NoFreeConnectionError,
    UnheardError,
)
from engine_adapters.remote.transport.exchange import Exchange
from engine_adapters.remote.transport.slots import Slots
from engine_adapters.remote.transport.target import Origin, Target

# Shorter than the five seconds after which servers of the uvicorn family close what idles: a request must not meet
# that moment.
_IDLE_S = 3.0
_TARGETS = 32
_TRIES = 3  # further ones; each takes a closed connection out of the pool
_AT_ONCE = 1.0  # seconds; what breaks later broke at the request, which is then not sent again


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds, but for the number of connections."""

    connect_s: float
    read_s: float  # for the head of an answer, and behind it for each byte
    write_s: float
    free_s: float  # for a free connection
    connections: int
    headers: Mapping[str, str] = field(default_factory=dict)  # on every request


class EngineClient:
    """Requests with JSON, to one engine. Used from one event loop, and may be made before that runs."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._targets: dict[tuple[str, str], Target] = {}
        self._idle: dict[Origin, deque[Connection]] = {}
        self._all: set[Connection] = set()
        self._origins: dict[Connection, Origin] = {}
        self._slots = Slots(bounds.connections)
        self._sweep: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    @property
    def open(self) -> int:
        """Connections, idle ones among them."""
        return len(self._all)

    async def ask(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Exchange:
        """The answer, once its head is there; whoever gets it closes it.

        Servers end connections that were kept, llama.cpp's right behind a stream. A request that meets that end has
        not been read, so it is sent again (RFC 9112, 9.3.1). On a connection of its own, or after a while, it is not.

        Raises TransportError.
        """
        target = self._target(method, url)
        head = target.head(len(body), headers)
        loop = asyncio.get_running_loop()
        for tries_left in range(_TRIES, -1, -1):
            if not self._slots.take():
                await self._slot()
            began = loop.time()
            connection = self._kept(target.origin, began)
            fresh = connection is None
            if connection is None:
                connection = await self._new(target.origin)
            try:
                return await connection.ask(head, body, self._bounds.read_s, self._bounds.write_s)
            except UnheardError:
                if fresh or not tries_left or loop.time() - began > _AT_ONCE:
                    raise
        raise AssertionError("the last try returns or raises")

    def _target(self, method: str, url: str) -> Target:
        """Of routes there are few, but of URLs with the id of a response in them there is no end."""
        found = self._targets.get((method, url))
        if found is None:
            found = Target(method, url, self._bounds.headers)
            if len(self._targets) < _TARGETS:
                self._targets[method, url] = found
        return found

    async def aclose(self) -> None:
        """End all connections; exchanges that run break."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._all):
            connection.close()

    async def _slot(self) -> None:
        try:
            await self._slots.wait(self._bounds.free_s)
        except TimeoutError:
            raise NoFreeConnectionError(f"all {self._bounds.connections} connections are in use") from None

    def _kept(self, origin: Origin, now: float) -> Connection | None:
        """The one that was used last; None: none is there."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.usable and connection.idle_since > now - _IDLE_S:
                return connection
            connection.close()
        return None

    async def _new(self, origin: Origin) -> Connection:
        """One for the slot that was taken; gives that back where there is none."""
        try:
            return await self._connected(origin)
        except BaseException:
            self._slots.give_back()
            raise

    async def _connected(self, origin: Origin) -> Connection:
        if self._closed:
            raise NoConnectionError("the client is closed")
        tls = await self._context() if origin.tls else None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._bounds.connect_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._ended, self._lost), origin.host, origin.port, ssl=tls
                )
        except TimeoutError:
            raise NoConnectionError(
                f"no connection to {origin.name} within {self._bounds.connect_s:g} s"
            ) from None
        except (OSError, ssl.SSLError) as error:
            raise NoConnectionError(f"{origin.name}: {error}") from error
        self._all.add(connection)
        self._origins[connection] = origin
        self._idle.setdefault(origin, deque())
        return connection

    async def _context(self) -> ssl.SSLContext:
        """Made on a thread: reading the list of authorities takes tens of milliseconds."""
        if self._tls is None:
            self._tls = await asyncio.to_thread(httpx.create_ssl_context, trust_env=False)
        return self._tls

    def _ended(self, connection: Connection, keep: bool) -> None:
        """An exchange is over."""
        self._slots.give_back()
        if not keep or self._closed or not connection.usable:
            connection.close()
            return
        connection.idle_since = connection.loop.time()
        self._idle[self._origins[connection]].append(connection)
        if self._sweep is None:
            self._sweep = connection.loop.call_later(_IDLE_S, self._end_idle)

    def _lost(self, connection: Connection) -> None:
        self._all.discard(connection)
        origin = self._origins.pop(connection, None)
        if origin is not None and connection in (idle := self._idle.get(origin, deque())):
            idle.remove(connection)

    def _end_idle(self) -> None:
        """End those that were idle for too long, and look again while there are others."""
        self._sweep = None
        loop = asyncio.get_running_loop()
        oldest = loop.time() - _IDLE_S
        for idle in self._idle.values():
            while idle and idle[0].idle_since <= oldest:
                idle.popleft().close()
        if any(self._idle.values()):
            self._sweep = loop.call_later(_IDLE_S, self._end_idle)
