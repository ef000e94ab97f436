"""Server-sent events: one frame a chunk, comments while nothing comes, never a clean end after a failure."""

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.types import Send

from gateway.errors import ApiError, ClientGoneError
from gateway.transport.eager import within

DONE = b"data: [DONE]\n\n"
KEEPALIVE = b": keep-alive\n\n"
_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")

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

    def __init__(self, send: Send, write_stall_s: float, *, named_errors: bool = False) -> None:
        self._send = send
        self._write_stall_s = write_stall_s
        self._named_errors = named_errors  # Anthropic's events have names
        self._headers = list(_HEADERS)
        self._whole = True  # False: the last bytes are a part of a frame
        self._writing = False
        self.started = False
        self.writes = 0

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Send these, too, where nothing was sent yet."""
        self._headers += [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]

    async def write(self, data: bytes) -> None:
        """Send frames; the headers go out with the first ones.

        Raises ClientGoneError when the client has taken no byte for too long.
        """
        self.writes += 1
        self._writing = True
        if not self.started:
            self.started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})
        await self._send_body(data, more=True)
        self._whole = data.endswith(_ENDS)
        self._writing = False

    async def keep_alive(self) -> None:
        """Send a comment, unless the stream stands in the middle of something. Raises as `write` does."""
        if self._whole and not self._writing:
            await self.write(KEEPALIVE)

    async def fail(self, error: ApiError) -> None:
        """Send an error event. The answer stays open: the server then cuts the connection."""
        if self._named_errors:
            await self.write(b"event: error\n" + frame({"type": "error", **error.body()}))
        else:
            await self.write(frame(error.body()))

    async def finish(self, data: bytes) -> None:
        """Send the last frames and end the answer cleanly."""
        await self._send_body(data, more=False)

    async def _send_body(self, data: bytes, *, more: bool) -> None:
        try:
            sending = self._send({"type": "http.response.body", "body": data, "more_body": more})
            await within(self._write_stall_s, sending)
        except TimeoutError:
            raise ClientGoneError("took no byte of its answer for too long") from None
