"""Follows one engine's KV events over ZeroMQ. What was missed is fetched again, or told."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import zmq
import zmq.asyncio

from engine_adapters.remote.kv_events import KvEventBatch, MalformedEventsError, Missed, decode_batch

_END_OF_REPLAY = -1


@dataclass(frozen=True, slots=True)
class KvEventSource:
    """Where an engine publishes."""

    endpoint: str  # tcp://host:port or ipc://path
    topic: str = ""
    replay: str | None = None  # where it gives out again what it has published; None: nowhere
    bind: bool = False  # the engine connects to us: vLLM does so where its endpoint names a single host
    max_waiting: int = 10_000  # batches that may wait here; more are dropped, and noticed
    max_bytes: int = 64 << 20  # of one batch
    replay_s: float = 5.0  # how long to wait for what was missed


class KvEventStream:
    """An endless stream of one source. Use as `async with`, then iterate; from one event loop."""

    def __init__(self, source: KvEventSource) -> None:
        self._source = source
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._next: int | None = None  # the number that should come; None: nothing has come yet
        self.malformed = 0  # messages that were no events

    async def __aenter__(self) -> "KvEventStream":
        source, socket = self._source, self._socket
        socket.setsockopt(zmq.RCVHWM, source.max_waiting)
        socket.setsockopt(zmq.MAXMSGSIZE, source.max_bytes)
        socket.setsockopt(zmq.SUBSCRIBE, source.topic.encode())
        if source.bind:
            socket.bind(source.endpoint)
        else:
            socket.connect(source.endpoint)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._context.destroy(linger=0)

    async def __aiter__(self) -> AsyncIterator[KvEventBatch | Missed]:
        while True:
            frames = await self._socket.recv_multipart()
            if len(frames) != 3 or len(frames[1]) != 8:
                self.malformed += 1
                continue
            seq = int.from_bytes(frames[1], "big")
            for each in await self._before(seq):
                yield each
            self._next = seq + 1
            batch = self._decoded(seq, frames[2])
            if batch is not None:
                yield batch

    async def _before(self, seq: int) -> list[KvEventBatch | Missed]:
        """What should have come before `seq`: fetched again where that can be, told where not."""
        if self._next is None:
            self._next = 0 if self._source.replay is not None else seq
        if seq == self._next:
            return []
        if seq < self._next:
            self._next = seq if self._source.replay is None else 0
            fetched = await self._fetched(seq) if self._source.replay is not None else []
            return [Missed(None), *fetched]
        return await self._fetched(seq)

    async def _fetched(self, until: int) -> list[KvEventBatch | Missed]:
        """Batches from the next one to the one before `until`, a Missed in the place of each hole."""
        expected = self._next or 0
        found: dict[int, bytes] = {}
        if self._source.replay is not None and expected < until:
            found = await self._replayed(self._source.replay, expected)
        out: list[KvEventBatch | Missed] = []
        for seq in sorted(number for number in found if expected <= number < until):
            if seq > expected:
                out.append(Missed(seq - expected))
            expected = seq + 1
            batch = self._decoded(seq, found[seq])
            if batch is not None:
                out.append(batch)
        if expected < until:
            out.append(Missed(until - expected))
        self._next = until
        return out

    async def _replayed(self, endpoint: str, start: int) -> dict[int, bytes]:
        """All that the engine still has from `start` on, at most `max_waiting` batches."""
        found: dict[int, bytes] = {}
        with self._context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.MAXMSGSIZE, self._source.max_bytes)
            socket.connect(endpoint)
            await socket.send_multipart([b"", start.to_bytes(8, "big")])
            while len(found) < self._source.max_waiting and await socket.poll(self._source.replay_s * 1000):
                *_, number, payload = await socket.recv_multipart()
                seq = int.from_bytes(number, "big", signed=True)
                if seq == _END_OF_REPLAY:
                    break
                found[seq] = payload
        return found

    def _decoded(self, seq: int, payload: bytes) -> KvEventBatch | None:
        try:
            return decode_batch(seq, payload)
        except MalformedEventsError:
            self.malformed += 1
            return None
