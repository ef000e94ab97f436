"""Follows one engine's KV events over ZeroMQ. What was missed is fetched again, or told."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import chain

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from engine_adapters.remote.kv_events import KvEventBatch, MalformedEventsError, Missed, decode_batch

_END_OF_REPLAY = -1
_MOST_REPLAYED = 20_000  # batches; engines keep 10,000 unless they are told otherwise


@dataclass(frozen=True, slots=True)
class KvEventSource:
    """Where an engine publishes."""

    endpoint: str  # tcp://host:port or ipc://path
    topic: str = ""
    replay: str | None = None  # where it gives out again what it has published; None: nowhere
    bind: bool = False  # the engine connects to us: vLLM does so where its endpoint names a single host
    max_waiting: int = 1_000  # batches that may wait here; more are dropped, and noticed
    max_bytes: int = 4 << 20  # of one batch: one that is larger ends the connection, which is made anew
    max_replayed: int = 64 << 20  # bytes of what is fetched again at once
    replay_s: float = 5.0  # how long to wait for what was missed


class KvEventStream:
    """An endless stream of one source. Use as `async with`, then iterate; from one event loop."""

    def __init__(self, source: KvEventSource) -> None:
        self._source = source
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._next: int | None = None  # the number that should come; None: nothing has come yet
        self._at = -math.inf  # when the last batch was made, by the engine's clock
        self._monitor = self._socket.get_monitor_socket()
        self._watching: asyncio.Task[None] | None = None
        self.malformed = 0  # messages that were no events
        self.connected = self.was_connected = False

    async def __aenter__(self) -> "KvEventStream":
        """Raises ZMQError for an address that is none."""
        try:
            self._open()
        except zmq.ZMQError:
            await self.__aexit__()  # what is left of it open would be waited for without an end
            raise
        return self

    def _open(self) -> None:
        source, socket = self._source, self._socket
        socket.setsockopt(zmq.RCVHWM, source.max_waiting)
        socket.setsockopt(zmq.MAXMSGSIZE, source.max_bytes)
        socket.setsockopt(zmq.SUBSCRIBE, source.topic.encode())
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.RECONNECT_IVL, 200)  # ms, doubled until
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 5_000)
        socket.setsockopt(
            zmq.HEARTBEAT_IVL, 10_000
        )  # or a machine that is gone would be waited for in silence
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 10_000)
        self._watching = asyncio.create_task(self._watch())
        if source.bind:
            socket.bind(source.endpoint)
        else:
            socket.connect(source.endpoint)

    async def __aexit__(self, *_: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        self._socket.disable_monitor()
        self._context.destroy(linger=0)

    def begin_anew(self) -> None:
        """Nothing that came counts any more: what can be fetched again is, from the first batch on."""
        self._next = None
        self._at = -math.inf

    async def _watch(self) -> None:
        while True:
            frames = await self._monitor.recv_multipart()
            event = parse_monitor_message(frames)["event"]
            if event in (zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_DISCONNECTED):
                self.connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
                self.was_connected = True

    async def __aiter__(self) -> AsyncIterator[KvEventBatch | Missed]:
        for each in await self._kept():
            yield each
        while True:
            frames = await self._socket.recv_multipart()
            if len(frames) != 3 or len(frames[1]) != 8:
                self.malformed += 1
                continue
            seq, batch = int.from_bytes(frames[1], "big"), None
            if self._next is not None and seq < self._next:
                before = self._at
                batch = self._decoded(seq, frames[2])
                if isinstance(batch, KvEventBatch) and batch.at <= before:
                    self._at = before
                    continue  # it was fetched before it came
            for each in await self._before(seq):
                yield each
            self._next = seq + 1
            yield batch or self._decoded(seq, frames[2])

    async def _kept(self) -> Iterator[KvEventBatch | Missed]:
        """What an engine that is idle now has published before."""
        if self._source.replay is None:
            return iter(())
        found = await self._replayed(self._source.replay, 0)
        self._next = 0
        return self._placed(found, max(found, default=-1) + 1)

    async def _before(self, seq: int) -> Iterator[KvEventBatch | Missed]:
        """What should have come before `seq`: fetched again where that can be, told where not."""
        if self._next is None:
            self._next = 0 if self._source.replay is not None else seq
        if seq == self._next:
            return iter(())
        if seq < self._next:
            self._next = seq if self._source.replay is None else 0
            fetched = await self._fetched(seq) if self._source.replay is not None else ()
            return chain((Missed(None),), fetched)
        return await self._fetched(seq)

    async def _fetched(self, until: int) -> Iterator[KvEventBatch | Missed]:
        """Batches from the next one to the one before `until`, a Missed in the place of each hole."""
        found: dict[int, bytes] = {}
        if self._source.replay is not None and (self._next or 0) < until:
            found = await self._replayed(self._source.replay, self._next or 0)
        return self._placed(found, until)

    def _placed(self, found: dict[int, bytes], until: int) -> Iterator[KvEventBatch | Missed]:
        expected = self._next or 0
        self._next = until
        for seq in sorted(number for number in found if expected <= number < until):
            if seq > expected:
                yield Missed(seq - expected)
            expected = seq + 1
            yield self._decoded(seq, found.pop(seq))
        if expected < until:
            yield Missed(until - expected)

    async def _replayed(self, endpoint: str, start: int) -> dict[int, bytes]:
        """All that the engine still has from `start` on, within bounds."""
        found: dict[int, bytes] = {}
        left = self._source.max_replayed
        with self._context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.IPV6, 1)
            socket.setsockopt(zmq.MAXMSGSIZE, self._source.max_bytes)
            socket.connect(endpoint)
            await socket.send_multipart([b"", start.to_bytes(8, "big")])
            while (
                left > 0 and len(found) < _MOST_REPLAYED and await socket.poll(self._source.replay_s * 1000)
            ):
                frames = await socket.recv_multipart()
                seq = int.from_bytes(frames[-2], "big", signed=True) if len(frames) > 1 else _END_OF_REPLAY
                if seq == _END_OF_REPLAY:
                    break
                found[seq] = frames[-1]
                left -= len(frames[-1])
        return found

    def _decoded(self, seq: int, payload: bytes) -> KvEventBatch | Missed:
        """What cannot be read may have said anything: it is missed."""
        try:
            batch = decode_batch(seq, payload)
        except MalformedEventsError:
            self.malformed += 1
            return Missed(1)
        self._at = batch.at
        return batch
