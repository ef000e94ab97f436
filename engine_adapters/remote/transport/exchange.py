"""One request and its answer, while that arrives."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import Protocol

import httptools

from engine_adapters.remote.transport.errors import (
    BrokenError,
    TooLargeError,
    TooSlowError,
    TransportError,
    UnheardError,
)

_PAUSE_AT = 256 * 1024  # bytes that wait for a slow reader; the engine is then slowed, too
_MAX_HEAD = 256 * 1024  # bytes of an answer's head
_UNPACKED = 1 << 20  # bytes that are unpacked at once
# By content-encoding; what else there is needs libraries of its own.
_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class Line(Protocol):
    """The connection below an exchange."""

    def hold(self, on: bool) -> None:
        """Read no more, or again."""

    def watch(self, until: float) -> None:
        """Call `late` when the loop's clock says so and the exchange still waits; never for an earlier time than
        before."""

    def cut(self) -> None:
        """End the connection at once."""

    def free(self, *, keep: bool) -> None:
        """The exchange is over; `keep`: the connection can take another one."""


class Exchange:
    """An answer: its head once `head_by()` says so, its body from `chunks()`. Used from one event loop.

    `read_s` is how long the head may be waited for, and behind it each byte.
    """

    def __init__(self, line: Line, read_s: float, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0  # 0: not known yet
        self.headers: dict[str, str] = {}  # names in lower case; repeated ones joined
        self.heard = False  # a byte of the answer has come
        self._line = line
        self._read_s = read_s
        self._loop = loop  # asked for once a connection: finding it takes a call of the system
        self._parser = httptools.HttpResponseParser(self)
        self._head_size = 0
        self._parts: list[bytes] = []
        self._waiting_bytes = 0
        self._held = self._headed = self._complete = False
        self._error: TransportError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._until = 0.0

    # What the connection tells.

    def received(self, data: bytes) -> None:
        """Bytes of the answer."""
        self.heard = True
        if not self._headed:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, ValueError) as error:
            self.fail(BrokenError(f"what came is no HTTP ({type(error).__name__})"))
            return
        if not self._headed and self._head_size > _MAX_HEAD:
            self.fail(BrokenError("the answer's head is too large"))
            return
        if self._waiting_bytes > _PAUSE_AT and not self._held and not self._complete:
            self._held = True
            self._line.hold(True)
        self._wake()

    def ended(self) -> None:
        """The connection has ended. An answer without a length ends like this, and is whole."""
        if self._headed and self._ends_with_connection():
            self._finish(keep=False)
            self._wake()
        elif self.heard:
            self.fail(BrokenError("the engine ended the connection"))
        else:
            self.fail(UnheardError("the engine ended the connection before it answered"))

    @property
    def waits_until(self) -> float | None:
        """Of the loop's clock; None: nobody waits."""
        return None if self._waiter is None or self._waiter.done() else self._until

    def late(self) -> None:
        """What was waited for did not come."""
        self.fail(TooSlowError("no byte came in time" if self._headed else "its head did not come in time"))

    def fail(self, error: TransportError) -> None:
        """End the exchange, and the connection with it."""
        if not self._complete and self._error is None:
            self._error = error
            self._line.cut()
            self._line.free(keep=False)
            self._wake()

    def _ends_with_connection(self) -> bool:
        return "content-length" not in self.headers and "transfer-encoding" not in self.headers

    # What the parser tells.

    def on_message_begin(self) -> None:
        if self._complete:  # more than was asked for, which would be read as the next answer
            self._line.cut()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._headed:  # trailers, and what must not be there
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        have = self.headers.get(key)
        self.headers[key] = text if have is None else f"{have}, {text}"

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and not self._headed:
            self.status, self._headed = status, True

    def on_body(self, body: bytes) -> None:
        if self._complete:
            return
        self._parts.append(body)
        self._waiting_bytes += len(body)

    def on_message_complete(self) -> None:
        if not self._headed:  # 100 and its like; the answer is still to come
            self.headers.clear()
            return
        self._finish(keep=self._parser.should_keep_alive() and not self._ends_with_connection())

    def _finish(self, *, keep: bool) -> None:
        if not self._complete:
            self._complete = True
            self._line.free(keep=keep)

    # What the reader asks.

    @property
    def begun(self) -> bool:
        """Whether the head is there, or will never be."""
        return self._headed or self._error is not None

    def head_by(self, until: float) -> "asyncio.Future[None] | None":
        """None: status and headers are there; else what to await, until then, before this is asked again.

        Raises TransportError.
        """
        if self._headed:
            return None
        if self._error is not None:
            raise self._error
        return self._wait(until)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, unpacked where it is packed; raises TransportError when it breaks off."""
        coding = self.headers.get("content-encoding", "identity").strip().lower()
        if coding in ("identity", ""):
            while data := await self._some():
                yield data
            return
        if coding not in _WINDOWS:
            raise BrokenError(f"the answer is packed with {coding!r:.40}, which was not asked for")
        unpacker = zlib.decompressobj(_WINDOWS[coding])
        while data := await self._some():
            while data:
                if part := _unpacked(unpacker, data):
                    yield part
                data = unpacker.unconsumed_tail
        if not unpacker.eof:
            raise BrokenError("what is packed ends in its middle")

    async def read(self, most: int | None = None) -> bytes:
        """The whole body; raises TooLargeError past `most` bytes of it."""
        parts: list[bytes] = []
        size = 0
        packed = "content-encoding" in self.headers
        chunks = self.chunks() if packed else None
        while data := await (self._some() if chunks is None else anext(chunks, b"")):
            parts.append(data)
            size += len(data)
            if most is not None and size > most:
                raise TooLargeError(f"the answer has more than {most} bytes")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Whoever asked is done. What is not whole by now is cut off, which cancels it in the engine."""
        if not self._complete:
            self.fail(BrokenError("the exchange was closed"))
        self._parts.clear()

    async def _some(self) -> bytes:
        """What has arrived, at least a byte of it; empty at the end."""
        while not self._parts:
            if self._complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait(self._loop.time() + self._read_s)
        parts, self._parts = self._parts, []
        self._waiting_bytes = 0
        if self._held:
            self._held = False
            self._line.hold(False)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _wait(self, until: float) -> "asyncio.Future[None]":
        """To be awaited at once; done when something has come, or nothing will."""
        self._until = until
        self._line.watch(until)
        waiter = self._waiter = self._loop.create_future()
        return waiter


def _unpacked(unpacker: "zlib._Decompress", data: bytes) -> bytes:
    try:
        return unpacker.decompress(data, _UNPACKED)
    except zlib.error as error:
        raise BrokenError("what is said to be packed is not") from error
