"""Server-sent events: one frame a chunk, comments while nothing comes, never a clean end after a failure."""

import asyncio
from typing import Any

import orjson
from starlette.types import Send

from gateway.errors import ApiError, ClientGoneError

DONE = b"data: [DONE]\n\n"
KEEPALIVE = b": keep-alive\n\n"

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies of the nginx family pass frames on at once
]


def frame(payload: Any) -> bytes:
    """One event with `payload` as JSON."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


class EventStream:
    """An SSE answer being written. Bytes are handed to the server at once; a stalled client raises."""

    def __init__(self, send: Send, write_stall_s: float) -> None:
        self._send = send
        self._write_stall_s = write_stall_s
        self.started = False

    async def write(self, data: bytes) -> None:
        """Send frames; the headers go out with the first ones.

        Raises ClientGoneError when the client has taken no byte for too long.
        """
        if not self.started:
            self.started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await self._send_body(data, more=True)

    async def fail(self, error: ApiError) -> None:
        """Send an error event. The answer stays open: the server then cuts the connection."""
        await self.write(frame(error.body()))

    async def finish(self, data: bytes) -> None:
        """Send the last frames and end the answer cleanly."""
        await self._send_body(data, more=False)

    async def _send_body(self, data: bytes, *, more: bool) -> None:
        try:
            async with asyncio.timeout(self._write_stall_s):
                await self._send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            raise ClientGoneError("took no byte of its answer for too long") from None
