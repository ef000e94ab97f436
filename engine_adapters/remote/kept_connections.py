"""Requests over connections that the engine may be closing at this moment."""

import time
from typing import Any

import httpx

_TRIES = 3  # further ones; each takes a closed connection out of the pool
_AT_ONCE = 1.0  # seconds; what breaks later broke at the request, which is then not sent again


async def send_kept(client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
    """The answer, its body still to come; raises what `client.send` does.

    Servers end connections that were kept, llama.cpp's right behind a stream. A request that meets that end has not
    been read, so it is sent again (RFC 9112, 9.3.1). On a connection of its own, or after a while, it is not.
    """
    for _ in range(_TRIES):
        fresh = _Fresh()
        request.extensions = {**request.extensions, "trace": fresh.trace}
        began = time.monotonic()
        try:
            return await client.send(request, stream=True)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            if fresh.opened or time.monotonic() - began > _AT_ONCE:
                raise
    return await client.send(request, stream=True)


class _Fresh:
    """Whether a connection was made for the request."""

    def __init__(self) -> None:
        self.opened = False

    async def trace(self, event: str, _: dict[str, Any]) -> None:
        self.opened = self.opened or event.startswith("connection.connect_")
