"""One connection between two processes. Both sides may call; each answers what its service offers.

Every frame is a list that begins with its kind:

    [CALL, id, name, [argument, ...]]        answered by REPLY, FAILED, or ITEMS and then one of these
    [TELL, name, [argument, ...]]            not answered
    [REPLY, id, value]      [FAILED, id, kind, message, fields]
    [ITEMS, [[id, [item, ...]], ...]]        of several streams: all that came in one turn of the event loop
    [MORE, id, count]       [CANCEL, id]     from who reads a stream: so many were taken; nobody wants the rest
"""

import asyncio
import inspect
import itertools
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import Any, cast

from engine_adapters.rpc.errors import AwayError, FailedError, FrameError, SilentError, raised, told
from engine_adapters.rpc.frames import FrameSplitter, frame_of
from engine_adapters.rpc.service import Service

log = logging.getLogger("kvgate.rpc")

CALL, TELL, REPLY, FAILED, ITEMS, MORE, CANCEL = range(7)

PING = "ping"  # every side answers this
WINDOW = 256  # items of one stream that are on their way and not taken yet
MAX_RUNNING = 16_384  # calls of one peer that are answered at the same time
MAX_UNSENT = 128 << 20  # bytes a peer leaves unread before it is cut


class _Reading:
    """A stream as its reader has it."""

    def __init__(self) -> None:
        self.items: deque[Any] = deque()
        self.filled = asyncio.Event()
        self.ended = False
        self.error: Exception | None = None

    def end(self, error: Exception | None) -> None:
        self.ended, self.error = True, error
        self.filled.set()


class _Sending:
    """A stream as its sender has it: how many items may still go out."""

    def __init__(self) -> None:
        self.credit = WINDOW
        self.more = asyncio.Event()

    async def take(self) -> None:
        while self.credit <= 0:
            self.more.clear()
            await self.more.wait()
        self.credit -= 1

    def add(self, count: int) -> None:
        self.credit += count
        self.more.set()


class Connection(asyncio.Protocol):
    """Made by `connect` and by a `Server`. Used from one event loop."""

    def __init__(self, service: Service | None = None) -> None:
        self._service = service or Service()
        self._splitter = FrameSplitter()
        self._transport: asyncio.Transport | None = None
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._reading: dict[int, _Reading] = {}
        self._sending: dict[int, _Sending] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._items: dict[int, list[Any]] = {}  # that go out at the end of this turn of the event loop
        self._writable = asyncio.Event()
        self._writable.set()
        self.closed = asyncio.Event()

    async def call(self, name: str, *args: Any, timeout_s: float | None = 5.0) -> Any:
        """Ask the other side, and wait for its answer.

        Raises:
            AwayError: it went.
        SilentError: it did not answer in time.
            EngineError, FailedError: as it failed there.
        """
        number = next(self._numbers)
        waiting = self._calls[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._ask(number, name, args)
                return await waiting
        except TimeoutError as error:
            raise SilentError(f"{name} was not answered within {timeout_s:g} s") from error
        finally:
            self._calls.pop(number, None)
            if not waiting.done() or waiting.cancelled():
                self._send([CANCEL, number])

    def tell(self, name: str, *args: Any) -> None:
        """Send a message that is not answered; lost where the other side has gone."""
        self._send([TELL, name, args])

    async def stream(self, name: str, *args: Any) -> AsyncGenerator[list[Any], None]:
        """What the other side's stream gives, as many items at once as have come. Closing it cancels it there.

        Raises:
            AwayError: the other side went.
            EngineError, FailedError: as it failed there.
        """
        number = next(self._numbers)
        reading = self._reading[number] = _Reading()
        try:
            await self._ask(number, name, args)
            taken = 0
            while True:
                items = await _next(reading)
                if not items:
                    break
                yield items
                taken += len(items)
                if taken >= WINDOW // 2 and not reading.ended:
                    self._send([MORE, number, taken])
                    taken = 0
            if reading.error is not None:
                raise reading.error
        finally:
            self._reading.pop(number, None)
            if not reading.ended:
                self._send([CANCEL, number])

    def close(self) -> None:
        """End it; calls and streams that run fail with AwayError."""
        if self._transport is not None:
            self._transport.abort()

    async def _ask(self, number: int, name: str, args: tuple[Any, ...]) -> None:
        await self._writable.wait()
        if self.closed.is_set():
            raise AwayError("the other process has gone")
        self._send([CALL, number, name, args])

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._splitter.feed(data):
                self._take(frame)
        except (FrameError, TypeError, ValueError, IndexError) as error:
            log.error("a process does not keep to the protocol: %s", error)  # noqa: TRY400
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        self._writable.set()
        gone = AwayError("the other process has gone")
        for waiting in self._calls.values():
            if not waiting.done():
                waiting.set_exception(gone)
        for reading in self._reading.values():
            reading.end(gone)
        for task in list(self._tasks.values()):
            task.cancel()
        self._service.closed(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # Frames that come.

    def _take(self, frame: Any) -> None:
        match frame:
            case [4, streams]:
                for number, items in streams:
                    reading = self._reading.get(number)
                    if reading is not None:  # else it was cancelled
                        reading.items.extend(items)
                        reading.filled.set()
            case [0, int(number), str(name), list(args)]:
                self._answer(number, name, args)
            case [1, str(name), list(args)]:
                self._hear(name, args)
            case [2, int(number), value]:
                self._end(number, value, None)
            case [3, int(number), str(kind), str(message), dict(fields)]:
                self._end(number, None, raised(kind, message, fields))
            case [5, int(number), int(count)]:
                if (sending := self._sending.get(number)) is not None:
                    sending.add(count)
            case [6, int(number)]:
                if (task := self._tasks.get(number)) is not None:
                    task.cancel()
            case _:
                raise FrameError("a frame of an unknown kind")

    def _end(self, number: int, value: Any, error: Exception | None) -> None:
        reading, waiting = self._reading.get(number), self._calls.get(number)
        if reading is not None:
            reading.end(error)
        elif waiting is not None and not waiting.done():
            if error is None:
                waiting.set_result(value)
            else:
                waiting.set_exception(error)

    def _answer(self, number: int, name: str, args: list[Any]) -> None:
        if name == PING:
            self._succeed(number, None)
        elif len(self._tasks) >= MAX_RUNNING:
            self._fail(number, FailedError("too many calls"))
        elif (stream := self._service.streams.get(name)) is not None:
            self._sending[number] = _Sending()
            self._run(number, self._pump(number, stream(self, *args)))
        elif (call := self._service.calls.get(name)) is not None:
            try:
                value = call(self, *args)
            except Exception as error:  # noqa: BLE001  whatever a call breaks is that call's answer
                self._fail(number, error)
            else:
                if inspect.isawaitable(value):
                    task = self._run(number, self._reply(number, value))
                    if inspect.iscoroutine(value):  # one that is cancelled before it begins
                        task.add_done_callback(lambda _: value.close())
                else:
                    self._succeed(number, value)
        else:
            self._fail(number, FailedError(f"nothing is called {name:.40}"))

    def _hear(self, name: str, args: list[Any]) -> None:
        try:
            self._service.calls[name](self, *args)
        except Exception:
            log.exception("a message could not be taken", extra={"fields": {"name": name}})

    def _run(self, number: int, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._forget(number))
        return task

    def _forget(self, number: int) -> None:
        self._tasks.pop(number, None)
        self._sending.pop(number, None)

    async def _reply(self, number: int, value: Awaitable[Any]) -> None:
        try:
            result = await value
        except Exception as error:  # noqa: BLE001  as above
            self._fail(number, error)
        else:
            self._succeed(number, result)

    async def _pump(self, number: int, items: AsyncGenerator[Any, None]) -> None:
        sending = self._sending[number]
        try:
            async with aclosing(items):
                async for item in items:
                    await sending.take()
                    await self._writable.wait()
                    self._queue(number, item)
        except Exception as error:  # noqa: BLE001  as above
            self._fail(number, error)
        else:
            self._send([REPLY, number, None])

    # Frames that go.

    def _queue(self, number: int, item: Any) -> None:
        if not self._items:
            asyncio.get_running_loop().call_soon(self._flush)
        self._items.setdefault(number, []).append(item)

    def _flush(self) -> None:
        if self._items:
            items, self._items = self._items, {}
            self._write([ITEMS, list(items.items())])

    def _succeed(self, number: int, value: Any) -> None:
        try:
            self._send([REPLY, number, value])
        except FrameError as error:
            self._fail(number, error)

    def _fail(self, number: int, error: Exception) -> None:
        kind, message, fields = told(error)
        if kind == "FailedError":
            log.error("a call from another process failed", exc_info=error)
        self._send([FAILED, number, kind, message, fields])

    def _send(self, value: list[Any]) -> None:
        self._flush()  # what was said before goes before
        self._write(value)

    def _write(self, value: list[Any]) -> None:
        if self._transport is None or self.closed.is_set():
            return  # nobody waits for it
        self._transport.write(frame_of(value))
        if self._transport.get_write_buffer_size() > MAX_UNSENT:
            log.error("a process reads nothing any more; its connection is cut")
            self.close()


async def _next(reading: _Reading) -> list[Any]:
    """What has come, waiting for it; empty at the end."""
    while not reading.items and not reading.ended:
        reading.filled.clear()
        await reading.filled.wait()
    items = list(reading.items)
    reading.items.clear()
    return items


async def connect(path: str, service: Service | None = None) -> Connection:
    """Connect to a Unix socket; raises AwayError where nobody listens there."""
    try:
        _, connection = await asyncio.get_running_loop().create_unix_connection(
            lambda: Connection(service), path
        )
    except OSError as error:
        raise AwayError(f"nobody answers at {path}: {error.strerror}") from error
    return connection
