"""Listens on a Unix socket that only this user can reach."""

import asyncio
import os
from pathlib import Path

from engine_adapters.rpc.connection import Connection
from engine_adapters.rpc.service import Service


class Server:
    """Offers one service to every process that connects. From one event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._connections: set[Connection] = set()
        self._closed = service.closed
        self._server: asyncio.AbstractServer | None = None

    async def listen(self, path: Path) -> "Server":
        """Begin; a socket that an earlier process left there is replaced. The folder must be 0700."""
        _make_room(path)
        self._service.closed = self._gone
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._made, str(path))
        os.chmod(path, 0o600)  # the folder keeps others out already
        return self

    @property
    def connections(self) -> frozenset[Connection]:
        """Those that are open."""
        return frozenset(self._connections)

    def close(self) -> None:
        """Take no more connections, and cut those that are open: what runs for them is cancelled."""
        if self._server is not None:
            self._server.close()
        for each in list(self._connections):
            each.close()

    def _made(self) -> Connection:
        connection = Connection(self._service)
        self._connections.add(connection)
        return connection

    def _gone(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._closed(connection)


def _make_room(path: Path) -> None:
    if path.parent.stat().st_mode & 0o077:
        raise PermissionError(f"{path.parent} can be reached by others")
    path.unlink(missing_ok=True)
