"""The HTTP server, and how it ends: not ready at once, still open for a while, then only what runs, then nothing."""

import asyncio
import logging
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from gateway.reload.live import Live
from gateway.served import Served
from gateway.transport.http_protocol import GatewayHttpProtocol

log = logging.getLogger("kvgate.gateway")

_CLOSE = (b"connection", b"close")
_LINGER_S = 0.5  # what is on its way on an open connection when the listener closes is still taken


@dataclass(frozen=True, slots=True)
class Ending:
    """What happens between a signal to stop and the end. Seconds."""

    delay_s: float = 0.0  # new requests are still taken for so long: load balancers notice late
    grace_s: float = 30.0  # then running ones may go on for so long


def server_config(app: ASGIApp, *, grace_s: float) -> uvicorn.Config:
    """How every kvgate server runs its app."""
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=GatewayHttpProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        # The engine is closed at `grace_s`, which ends every stream with an error event; this is for what is left.
        timeout_graceful_shutdown=int(grace_s) + 5,
    )


class GatewayServer(uvicorn.Server):
    """A server that drains on a first signal, ends at once on a second, and closes the engines before it is gone."""

    def __init__(self, config: uvicorn.Config, served: Served, ending: Ending, live: Live) -> None:
        super().__init__(config)
        self._served = served
        self._live = live
        self._ending = ending
        self._closes_at: float | None = None  # of the monotonic clock; None: no signal came
        self._over = asyncio.Event()  # nothing runs any more, or nobody wants to wait for it

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """On a signal, between two steps of this thread."""
        self._captured_signals.append(sig)
        if self._closes_at is not None or self.should_exit:
            log.warning(
                "a second signal: what runs is ended now", extra={"fields": {"running": self._running}}
            )
            self.should_exit = self.force_exit = True
            self._loop.call_soon_threadsafe(self._over.set)
            return
        self._served.drain("it is shutting down")
        self._closes_at = time.monotonic() + self._ending.delay_s
        # Whoever keeps a connection is to come back on another one, which leads to another server.
        self.config.encoded_headers.append(_CLOSE)
        self.server_state.default_headers = [*self.server_state.default_headers, _CLOSE]
        fields = {
            "running": self._running,
            "listens_s": self._ending.delay_s,
            "grace_s": self._ending.grace_s,
        }
        log.info("draining: not ready any more", extra={"fields": fields})

    async def on_tick(self, counter: int) -> bool:
        if self._closes_at is not None and time.monotonic() >= self._closes_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._closes_at is not None and not self.force_exit:
            await self._stop_listening(sockets or [])
        closing = asyncio.create_task(self._close())
        await super().shutdown(sockets)
        self._over.set()
        await closing
        if self.force_exit:  # then it was left out above, and its task would end with an error in the log
            await self.lifespan.shutdown()

    async def open(self, listener: socket.socket) -> None:
        """Take connections from `listener` as well, from now on."""
        config = self.config

        def protocol() -> asyncio.Protocol:
            return GatewayHttpProtocol(config, self.server_state, self.lifespan.state)

        if not self.should_exit:
            self.servers.append(
                await self._loop.create_server(protocol, sock=listener, backlog=config.backlog)
            )

    @property
    def _running(self) -> int:
        return len(self.server_state.tasks)

    async def _stop_listening(self, listeners: Sequence[socket.socket]) -> None:
        """Nobody is let in from here on, and who was let in by the system is served, too."""
        waiting = [connection for listener in listeners for connection in _last_ones(listener)]
        for server in self.servers:
            server.close()
        for connection in waiting:
            await self._loop.connect_accepted_socket(self._protocol, connection)
        log.info("the listener is closed", extra={"fields": {"running": self._running}})
        await asyncio.sleep(_LINGER_S)

    def _protocol(self) -> asyncio.Protocol:
        config = self.config
        return GatewayHttpProtocol(
            config=config, server_state=self.server_state, app_state=self.lifespan.state, _loop=self._loop
        )

    async def _close(self) -> None:
        """Requests that run are not told before their time is over: nobody new can come."""
        try:
            async with asyncio.timeout(self._ending.grace_s):
                await self._over.wait()
        except TimeoutError:
            fields = {"running": self._running}
            log.warning(
                "requests still run after the grace period; they are ended now", extra={"fields": fields}
            )
        backend = self._served.withdraw("it is shutting down")
        if backend is not None:
            await backend.engine.aclose()
        await self._live.aclose()


def _last_ones(listener: socket.socket) -> list[socket.socket]:
    """Connections that nobody has taken yet; closing the listener would reset them. None can come behind them."""
    taken: list[socket.socket] = []
    with suppress(OSError):  # none is left
        while True:
            connection, _ = listener.accept()
            connection.setblocking(False)
            taken.append(connection)
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RD)
    return taken
