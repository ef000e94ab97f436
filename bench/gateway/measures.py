"""What is measured of one running server: rates, latencies, CPU time a request and a chunk, memory of open streams."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import uvloop

from bench.gateway.bodies import chats, stream_chat
from bench.gateway.load import Load, Requests, Streams, closed_loop, open_loop, streams
from bench.gateway.processes import Running

Result = TypeVar("Result")

CLIENTS = 32
RATE = 300.0  # requests a second, open loop
_STREAMS, _PAUSE_MS = 16, 8.0  # side by side, when a chunk's CPU time is measured: 2,000 chunks a second
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Rate:
    """Of one closed loop."""

    per_second: float  # requests
    cpu_s: float  # of the server's process, a request
    failed: int


@dataclass(frozen=True, slots=True)
class Held:
    """What many open streams cost."""

    streams: Streams
    bytes_a_stream: float


class Measures:
    """One set of chats for all servers of a run."""

    def __init__(self) -> None:
        self._requests = Requests(chats(256))

    def warm(self, server: Running, seconds: float = 1.0) -> None:
        """Let it make its connections and fill its caches."""
        _run(closed_loop(server.port, self._requests, CLIENTS, seconds))

    def rate(self, server: Running, seconds: float) -> Rate:
        """As many requests as 32 clients get answered."""
        before = server.cpu_s()
        load = _run(closed_loop(server.port, self._requests, CLIENTS, seconds))
        return Rate(load.per_second, (server.cpu_s() - before) / load.requests, load.failed)

    def alone(self, server: Running, seconds: float) -> Load:
        """One client, one request after the other."""
        return _run(closed_loop(server.port, self._requests, 1, seconds))

    def paced(self, server: Running, seconds: float) -> Load:
        """Requests at a fixed rate."""
        return _run(open_loop(server.port, self._requests, RATE, seconds))

    def chunk_cpu(self, server: Running, chunks: int) -> float:
        """CPU seconds a chunk, of streams so long that their requests hardly count."""
        before = server.cpu_s()
        ran = _run(streams(server.port, stream_chat(chunks, _PAUSE_MS), _STREAMS, chunks, 0.2))
        if ran.lost:
            raise RuntimeError(f"{server.name} lost {ran.lost} of {ran.streams} streams")
        return (server.cpu_s() - before) / ran.events

    def held(self, server: Running, count: int, chunks: int, pause_ms: float) -> Held:
        """`count` streams open at once; memory is what the process grew by while they were."""
        before = server.memory()

        async def watched() -> tuple[Streams, int]:
            running = asyncio.create_task(
                streams(server.port, stream_chat(chunks, pause_ms), count, chunks, spread_s=3.0)
            )
            most = before
            while not running.done():
                await asyncio.wait([running], timeout=_LOOK_S)
                most = max(most, server.memory())
            return await running, most

        ran, most = _run(watched())
        return Held(ran, (most - before) / count)


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    return uvloop.run(work)
