"""Calls from threads, which wait for their answers."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from engine_adapters.rpc.connection import CALL, FAILED, REPLY
from engine_adapters.rpc.errors import AwayError, FrameError, raised
from engine_adapters.rpc.frames import HEAD, frame_of, size_in, value_in

_POOLED = 8  # connections that are kept for the next calls
_PAUSE_S = 1.0  # for so long nobody tries again after a failure


class BlockingClient:
    """Calls what a `Server` offers; from any thread, each call on a connection of its own.

    After a failure all calls fail at once for a while, so that a process that hangs holds nobody up twice.

    Args:
        path: of the Unix socket.
        timeout_s: for connecting, and for one answer.
        clock: seconds that never go back.
    """

    def __init__(
        self, path: str, timeout_s: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._clock = clock
        self._idle: list[socket.socket] = []
        self._lock = threading.Lock()
        self._away_until = float("-inf")

    def call(self, name: str, *args: Any) -> Any:
        """Ask, and wait for the answer.

        Raises:
            AwayError: the process is not there, or did not answer in time.
            EngineError, FailedError: as it failed there.
        """
        if self._clock() < self._away_until:
            raise AwayError("it was away a moment ago")
        connection, kept = self._take()
        try:
            answer = self._exchange(connection, name, args)
        except (OSError, FrameError) as error:
            connection.close()
            if kept and not isinstance(error, TimeoutError):
                self._drop_idle()  # they led to a process that has ended; another may be there
                return self.call(name, *args)
            self._failed()
            raise AwayError(f"{name} was not answered: {error or type(error).__name__}") from error
        self._give_back(connection)
        if answer[0] == FAILED:
            raise raised(*answer[2:])
        return answer[2]

    def close(self) -> None:
        """Close what is kept."""
        self._drop_idle()

    def _take(self) -> tuple[socket.socket, bool]:
        with self._lock:
            if self._idle:
                return self._idle.pop(), True
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self._timeout_s)
        try:
            connection.connect(self._path)
        except OSError as error:
            connection.close()
            self._failed()
            raise AwayError(f"nobody answers at {self._path}: {error.strerror or error}") from error
        return connection, False

    def _give_back(self, connection: socket.socket) -> None:
        with self._lock:
            if len(self._idle) < _POOLED:
                self._idle.append(connection)
                return
        connection.close()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for each in idle:
            with suppress(OSError):
                each.close()

    def _failed(self) -> None:
        self._away_until = self._clock() + _PAUSE_S

    def _exchange(self, connection: socket.socket, name: str, args: tuple[Any, ...]) -> list[Any]:
        connection.sendall(frame_of([CALL, 1, name, args]))
        size = size_in(_exactly(connection, HEAD))
        answer = value_in(_exactly(connection, size))
        if not isinstance(answer, list) or answer[0] not in (REPLY, FAILED):
            raise FrameError("an answer of an unknown kind")
        return answer


def _exactly(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    got = 0
    while got < size:
        count = connection.recv_into(view[got:])
        if not count:
            raise ConnectionError("it has gone")
        got += count
    return data
