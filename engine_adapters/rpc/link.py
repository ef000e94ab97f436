"""A connection that comes back: to a process that is started again when it ends."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from engine_adapters.rpc.connection import PING, Connection, connect
from engine_adapters.rpc.errors import AwayError, RpcError, SilentError
from engine_adapters.rpc.service import Service

log = logging.getLogger("kvgate.rpc")

_FIRST_WAIT_S = 0.02
_LAST_WAIT_S = 0.5


async def _no_greeting(_: Connection) -> None:
    """Nothing has to be said first."""


class Link:
    """Keeps one connection to `path`. `greet` speaks first on each, and only then others do. From one event loop.

    Args:
        name: of the other process, as log lines say it.
        service: what it may ask for over this connection.
    """

    def __init__(
        self,
        path: str,
        name: str,
        greet: Callable[[Connection], Awaitable[None]] = _no_greeting,
        service: Service | None = None,
    ) -> None:
        self._path = path
        self._name = name
        self._greet = greet
        self._service = service or Service()
        self._current: Connection | None = None
        self._there = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._hung: asyncio.Task[None] | None = None  # what waits for it to answer again

    def start(self) -> None:
        """Begin to look for the other process."""
        self._task = asyncio.create_task(self._keep())

    async def there(self, timeout_s: float | None = None) -> None:
        """Wait for the first connection; raises AwayError where there is none by then."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._there.wait()
        except TimeoutError:
            raise AwayError(f"{self._name} did not answer within {timeout_s:g} s") from None

    @property
    def is_there(self) -> bool:
        """Whether the other process can be asked now."""
        return self._current is not None and self._hung is None

    @property
    def connection(self) -> Connection:
        """The one that is open; raises AwayError where none is."""
        if self._current is None or self._hung is not None:
            raise AwayError(f"{self._name} {'is away' if self._current is None else 'does not answer'}")
        return self._current

    async def call(self, name: str, *args: Any, timeout_s: float | None = 5.0) -> Any:
        """As `Connection.call`. After a call that was not answered all others fail at once, until it answers again."""
        connection = self.connection
        try:
            return await connection.call(name, *args, timeout_s=timeout_s)
        except SilentError:
            if not connection.closed.is_set() and self._hung is None:
                self._hung = asyncio.create_task(self._wait_for(connection))
            raise

    def tell(self, name: str, *args: Any) -> None:
        """As `Connection.tell`: lost where the other process is away."""
        if self._current is not None:
            self._current.tell(name, *args)

    async def aclose(self) -> None:
        """Stay away from now on."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._hung is not None:
            self._hung.cancel()
        self._current = None

    async def _wait_for(self, connection: Connection) -> None:
        log.error("a process does not answer", extra={"fields": {"process": self._name}})
        try:
            await connection.call(PING, timeout_s=None)
            log.warning("a process answers again", extra={"fields": {"process": self._name}})
        except RpcError:
            pass  # its connection has ended, and the next one is waited for
        finally:
            self._hung = None

    async def _keep(self) -> None:
        wait = _FIRST_WAIT_S
        while True:
            try:
                connection = await connect(self._path, self._service)
                try:
                    await self._greet(connection)
                    self._begins(connection)
                    wait = _FIRST_WAIT_S
                    await connection.closed.wait()
                finally:
                    self._current = None
                    connection.close()
                log.error("a process has gone; it is waited for", extra={"fields": {"process": self._name}})
            except RpcError:
                await asyncio.sleep(wait)
                wait = min(2 * wait, _LAST_WAIT_S)

    def _begins(self, connection: Connection) -> None:
        if self._there.is_set():
            log.warning("a process is back", extra={"fields": {"process": self._name}})
        self._current = connection
        self._there.set()
