"""ZeroMQ's context for all streams of KV events in this process: each one would have threads and files of its own."""

import os
import threading

import zmq
import zmq.asyncio

_MOST_SOCKETS = 65_000  # some four a stream; ZeroMQ's own bound is 1,023


class SharedContext:
    """Made for the first user, ended behind the last one. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._process = 0
        self._context: zmq.asyncio.Context | None = None

    def taken(self) -> zmq.asyncio.Context:
        """For one user more, who closes all its sockets before it gives it back."""
        with self._lock:
            if self._context is None or self._process != os.getpid():  # a parent's is of no use in its child
                self._context, self._users, self._process = zmq.asyncio.Context(), 0, os.getpid()
                self._context.set(zmq.MAX_SOCKETS, _MOST_SOCKETS)
            self._users += 1
            return self._context

    def given_back(self) -> None:
        """One user less."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._context is not None:
                self._context.destroy(linger=0)
                self._context = None


CONTEXT = SharedContext()
