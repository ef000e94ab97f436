"""One connection to an engine, for one exchange after the other."""

import asyncio
from collections.abc import Callable
from typing import cast

from engine_adapters.remote.transport.errors import BrokenError, TooSlowError
from engine_adapters.remote.transport.exchange import Exchange


class Connection(asyncio.Protocol):
    """`ended` is called once for each exchange, with whether another may follow; `lost` when the connection is gone."""

    def __init__(
        self, ended: Callable[["Connection", bool], None], lost: Callable[["Connection"], None]
    ) -> None:
        self.idle_since = 0.0  # seconds of the loop's clock
        self._ended = ended
        self._lost = lost
        self._exchange: Exchange | None = None
        self._gone = False
        self._timer: asyncio.TimerHandle | None = None  # runs from the first wait on
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def usable(self) -> bool:
        """Whether it is still open, as far as is known."""
        return not self._gone and not self._transport.is_closing()

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        if self._exchange is not None:
            self._exchange.received(data)
        else:
            self._transport.abort()  # bytes that nobody asked for would be read as the next answer

    def eof_received(self) -> None:
        """The transport closes itself, and tells so."""

    def connection_lost(self, error: Exception | None) -> None:
        self._gone = True
        if self._timer is not None:
            self._timer.cancel()
        self._writable.set()
        if self._exchange is not None:
            self._exchange.ended()
        self._lost(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # What an exchange asks.

    def hold(self, on: bool) -> None:
        if self._transport.is_closing():
            return
        if on:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def watch(self, until: float) -> None:
        if self._timer is None:
            self._timer = self.loop.call_at(until, self._look)

    def cut(self) -> None:
        self._transport.abort()

    def free(self, *, keep: bool) -> None:
        self._exchange = None
        self._ended(self, keep)

    def _look(self) -> None:
        """Whether a wait has been too long. One timer for all exchanges: each ends later than the one before."""
        self._timer = None
        if self._exchange is None or (until := self._exchange.waits_until) is None:
            return
        if self.loop.time() < until:
            self.watch(until)
        else:
            self._exchange.late()

    # What the client asks.

    async def ask(self, head: bytes, body: bytes, read_s: float, write_s: float) -> Exchange:
        """Send one request and wait for the head of its answer. Cancelling cuts the connection.

        Raises TransportError.
        """
        exchange = self._exchange = Exchange(self, read_s, self.loop)
        try:
            if len(body) < 65_536:
                self._transport.write(head + body)
            else:
                self._transport.writelines((head, body))
            if not self._writable.is_set():
                await self._sent(exchange, write_s)
            until = (
                self.loop.time() + read_s
            )  # for all of it: an engine may send a byte of it now and then, for ever
            while (coming := exchange.head_by(until)) is not None:
                await coming
        except BaseException:
            exchange.close()
            raise
        return exchange

    async def _sent(self, exchange: Exchange, write_s: float) -> None:
        """Returns when the engine has taken enough, or answers already."""
        left = self._transport.get_write_buffer_size()
        while not self._writable.is_set() and not exchange.begun:
            try:
                async with asyncio.timeout(write_s):
                    await self._writable.wait()
            except TimeoutError:
                now = self._transport.get_write_buffer_size()
                if now >= left and not exchange.begun:
                    raise TooSlowError("it takes no byte of the request") from None
                left = now

    def close(self) -> None:
        """End it, whatever runs on it."""
        if self._exchange is not None:
            self._exchange.fail(BrokenError("the connection was closed here"))
        self._transport.abort()
