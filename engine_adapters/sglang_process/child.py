"""The parent's side of the child process: start, calls and streams over one socket, the end."""

import asyncio
import itertools
import logging
import os
import signal
import socket
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine_adapters.errors import EngineError, EngineFailureError, EngineNotReadyError
from engine_adapters.sglang_process import worker
from engine_adapters.sglang_process.native import error_of
from engine_adapters.sglang_process.worker import MAX_FRAME, BrokenFrameError, frame_bytes, read_frame

log = logging.getLogger("kvgate.sglang")

_TAIL = 40  # lines of what the child said last, for the message of its failure
_CLOSE_S = 30.0


class Child:
    """One process with one engine. Started with `start`; from one event loop."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._calls: dict[str, asyncio.Queue[dict[str, Any] | EngineError]] = {}
        self._numbers = itertools.count()
        self._said: deque[str] = deque(maxlen=_TAIL)
        self._listening = asyncio.create_task(self._listen())
        self._reading: asyncio.Task[None] | None = None
        self.info: Mapping[str, Any] = {}
        self.ended = asyncio.Event()
        self._closed = False

    @classmethod
    async def start(
        cls,
        python: Path,
        engine: Mapping[str, Any],
        environ: Mapping[str, str],
        timeout_s: float,
    ) -> "Child":
        """Run the engine and wait until it takes requests.

        Raises:
            EngineNotReadyError: it did not come up; the message has the end of what it said.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    str(python),
                    worker.__file__,
                    str(theirs.fileno()),
                    pass_fds=(theirs.fileno(),),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    env=os.environ | dict(environ),
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise EngineNotReadyError(f"SGLang's interpreter {python} cannot be run: {error}") from error
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_FRAME)
        child = cls(process, reader, writer)
        try:
            await child._begin(engine, timeout_s)
        except BaseException:
            await child.close(at_once=True)
            raise
        return child

    async def _begin(self, engine: Mapping[str, Any], timeout_s: float) -> None:
        self._writer.write(frame_bytes({"parent": os.getpid(), "engine": dict(engine)}))
        try:
            async with asyncio.timeout(timeout_s):
                first = await read_frame(self._reader)
        except TimeoutError as error:
            raise EngineNotReadyError(
                f"SGLang was not ready after {timeout_s:.0f} s.{self._last()}"
            ) from error
        if first is None or "ready" not in first:
            raise EngineNotReadyError(f"SGLang did not start.{await self._last_words()}")
        self.info = first["ready"]
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self._process.pid

    async def call(self, op: str, fields: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """One small request; raises EngineError."""
        return [frame async for frame in self.stream(op, fields or {})][-1]

    async def stream(self, op: str, fields: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any], None]:
        """The events of one request, and for small ones what they ended with.

        At most as many events wait here as the request has tokens.

        Raises:
            EngineError: the request, or the child, has failed.
        """
        if self.ended.is_set():
            raise EngineNotReadyError("SGLang's process has ended.")
        number = str(next(self._numbers))
        queue: asyncio.Queue[dict[str, Any] | EngineError] = asyncio.Queue()
        self._calls[number] = queue
        try:
            self._writer.write(frame_bytes({"id": number, "op": op, **fields}))
            await self._writer.drain()
            while True:
                frame = await queue.get()
                if isinstance(frame, EngineError):
                    raise frame
                if "error" in frame:
                    raise error_of(str(frame["error"].get("message")), frame["error"].get("code"))
                if "done" in frame:
                    if frame["done"]:
                        yield frame["done"]
                    return
                yield frame["event"]
        except ConnectionError as error:
            raise EngineFailureError("SGLang's process has ended.") from error
        finally:
            self._calls.pop(number, None)

    def abort(self, rid: str) -> None:
        """Tell the engine that nobody waits for a request any more."""
        if not self.ended.is_set():
            with suppress(ConnectionError):
                self._writer.write(frame_bytes({"op": "abort", "rid": rid}))

    async def close(self, *, at_once: bool = False) -> None:
        """End the process and all that it started; once."""
        if self._closed:
            return
        self._closed = True
        if not at_once and not self.ended.is_set():
            with suppress(ConnectionError):
                self._writer.write(frame_bytes({"op": "close"}))
        self._writer.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if at_once else _CLOSE_S):
                await self._process.wait()
        with suppress(
            ProcessLookupError
        ):  # the group outlives its leader where the engine's own processes hang
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await asyncio.gather(*filter(None, (self._reading, self._listening)), return_exceptions=True)

    async def _read(self) -> None:
        try:
            while (frame := await read_frame(self._reader)) is not None:
                queue = self._calls.get(str(frame.get("id")))
                if queue is not None:  # else it was cancelled
                    queue.put_nowait(frame)
        except BrokenFrameError as error:
            log.error("SGLang's process does not keep to the protocol: %s", error)  # noqa: TRY400
        finally:
            self.ended.set()
            failure = EngineFailureError("SGLang's process has ended while it worked on this request.")
            for queue in self._calls.values():
                queue.put_nowait(failure)

    async def _listen(self) -> None:
        """What the engine prints goes to our log."""
        assert self._process.stdout is not None
        while True:
            try:
                raw = await self._process.stdout.readline()
            except ValueError:
                continue  # longer than the reader keeps: dropped, so that the engine does not wait for us
            if not raw:
                return
            line = raw.decode(errors="replace").rstrip()
            self._said.append(line)
            log.info("%s", line)

    async def _last_words(self) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await self._listening
        return self._last()

    def _last(self) -> str:
        return " It said last:\n" + "\n".join(self._said) if self._said else ""
