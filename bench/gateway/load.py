"""Load on one port of this machine: as much as it takes, at an even pace, one at a time, or many streams."""

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.gateway.wire import Connection, request

KEY = "sk-" + secrets.token_hex(32)  # of this run; every server that asks for one is told


@dataclass(frozen=True, slots=True)
class Load:
    """What was sent, and what became of it."""

    requests: int
    failed: int
    seconds: float
    latencies: Sequence[float] = ()  # seconds, of those that were answered

    @property
    def per_second(self) -> float:
        """Answers a second."""
        return (self.requests - self.failed) / self.seconds

    @property
    def p50(self) -> float:
        """Seconds."""
        return median(self.latencies)

    @property
    def p99(self) -> float:
        """Seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


class Requests:
    """Bodies by turns, each as the bytes of its request."""

    def __init__(self, bodies: Sequence[bytes]) -> None:
        self._ready = [request(body, KEY) for body in bodies]
        self._next = 0

    def take(self) -> bytes:
        """The next one; after the last the first again."""
        self._next = (self._next + 1) % len(self._ready)
        return self._ready[self._next]


async def closed_loop(port: int, requests: Requests, clients: int, seconds: float) -> Load:
    """`clients` that each ask as soon as they are answered, for so long."""
    started = time.perf_counter()
    until, latencies, failed = started + seconds, list[float](), 0

    async def client() -> None:
        nonlocal failed
        connection = await Connection.to(port)
        while (now := time.perf_counter()) < until:
            answer = await connection.ask(requests.take())
            if answer.status == 200 and answer.done:
                latencies.append(answer.at - now)
            else:
                failed += 1
                if not connection.open:
                    connection = await Connection.to(port)
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return Load(len(latencies) + failed, failed, time.perf_counter() - started, latencies)


async def open_loop(port: int, requests: Requests, rate: float, seconds: float) -> Load:
    """Requests at `rate` a second, however long answers take; waiting counts from when each was due."""
    idle: list[Connection] = []
    latencies, failed = list[float](), 0

    async def one(due: float) -> None:
        nonlocal failed
        connection = idle.pop() if idle else await Connection.to(port)
        answer = await connection.ask(requests.take())
        if answer.status == 200 and answer.done:
            latencies.append(answer.at - due)
            idle.append(connection)
        else:
            failed += 1

    count = int(rate * seconds)
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            due = started + number / rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            group.create_task(one(due))
    for connection in idle:
        connection.close()
    return Load(count, failed, time.perf_counter() - started, latencies)


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams that were open side by side."""

    streams: int
    lost: int  # that did not come to their end with all of their events
    events: int
    seconds: float


async def streams(port: int, body: bytes, count: int, events: int, spread_s: float) -> Streams:
    """`count` streams that begin within `spread_s`, each of at least `events` events."""
    sent, started = request(body, KEY), time.perf_counter()

    async def one(number: int) -> tuple[bool, int]:
        await asyncio.sleep(spread_s * number / count)
        try:
            connection = await Connection.to(port)
        except OSError:
            return False, 0
        answer = await connection.ask(sent)
        connection.close()
        return answer.done and answer.status == 200 and answer.events >= events, answer.events

    ended = await asyncio.gather(*(one(number) for number in range(count)))
    whole = sum(whole for whole, _ in ended)
    total = sum(events for _, events in ended)
    return Streams(count, count - whole, total, time.perf_counter() - started)
