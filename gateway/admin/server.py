"""The admin app's own server, beside the one that requests come to."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from gateway.process.server import server_config


class _Beside(uvicorn.Server):
    """Leaves signals to the server it stands beside."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class AdminServer:
    """Runs on the event loop that requests run on, until it is closed."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        self._server = _Beside(server_config(app, grace_s=1))
        self._listener = listener
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Called on the event loop."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._listener]))

    async def aclose(self) -> None:
        """Answer nobody any more."""
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.wait([self._task], timeout=5)
            self._task.cancel()
