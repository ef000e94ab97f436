"""Follows one engine's KV events over ZeroMQ. What was missed is fetched again, or told."""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from engine_adapters.remote.kv_event_context import CONTEXT
from engine_adapters.remote.kv_events import KvEventBatch, MalformedEventsError, Missed, decode_batch

_END_OF_REPLAY = -1
_LARGE = 64 << 10  # bytes: a batch that takes longer to read than others should wait


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
    most_replayed: int = 20_000  # and messages of it; engines keep 10,000 unless they are told otherwise
    replay_s: float = 5.0  # how long to wait for the next piece of what was missed
    whole_replay_s: float = 15.0  # and for all of it: meanwhile nothing new is heard


class KvEventStream:
    """An endless stream of one source. Use as `async with`, then iterate; from one event loop."""

    def __init__(self, source: KvEventSource) -> None:
        self._source = source
        self._context = CONTEXT.taken()
        self._socket = self._context.socket(zmq.SUB)
        self._next: int | None = None  # the number that should come; None: nothing has come yet
        self._at = -math.inf  # when the last batch was made, by the engine's clock
        self._repeated = range(0)  # batches that were fetched and may come once more
        self._anew = 0  # how often everything began anew
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
        self._monitor.close(linger=0)
        self._socket.close(linger=0)
        CONTEXT.given_back()

    def begin_anew(self) -> None:
        """Nothing that came counts any more: what can be fetched again is, from the first batch on."""
        self._anew += 1
        self._forget()

    def _forget(self) -> None:
        self._next, self._at, self._repeated = None, -math.inf, range(0)

    async def _watch(self) -> None:
        while True:
            frames = await self._monitor.recv_multipart()
            event = parse_monitor_message(frames)["event"]
            if event in (zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_DISCONNECTED):
                self.connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
                self.was_connected = True

    async def __aiter__(self) -> AsyncIterator[KvEventBatch | Missed]:
        async for each in self._counting(self._kept()):
            yield each
        while True:
            frames = await self._socket.recv_multipart()
            await asyncio.sleep(0)  # what waits already comes without a pause: a flood is not all there is
            if len(frames) != 3 or len(frames[1]) != 8:
                self.malformed += 1
                continue
            came = self._came(int.from_bytes(frames[1], "big"), frames[2])
            async for each in self._counting(came):
                yield each

    async def _counting(
        self, items: AsyncGenerator[KvEventBatch | Missed, None]
    ) -> AsyncIterator[KvEventBatch | Missed]:
        """Those of them that count: what was on its way when everything began anew does not."""
        anew = self._anew
        async with aclosing(items):
            async for each in items:
                if anew != self._anew:
                    break
                yield each
        if anew != self._anew:
            self._forget()

    async def _came(self, seq: int, payload: bytes) -> AsyncGenerator[KvEventBatch | Missed, None]:
        """One batch, behind what should have come before it."""
        batch = None
        if self._next is not None and seq < self._next and seq in self._repeated:
            before = self._at
            batch = await self._decoded(seq, payload)
            if isinstance(batch, KvEventBatch) and batch.at <= before:
                self._at = before
                self._repeated = range(seq + 1, self._repeated.stop)  # they come in order, each once
                return
        self._repeated = range(0)
        async for each in self._before(seq):
            yield each
        self._next = seq + 1
        yield batch or await self._decoded(seq, payload)

    async def _kept(self) -> AsyncGenerator[KvEventBatch | Missed, None]:
        """What an engine that is idle now has published before."""
        if self._source.replay is None:
            return
        found = await self._replayed(self._source.replay, 0)
        self._next = 0
        async for each in self._placed(found, max(found, default=-1) + 1):
            yield each

    async def _before(self, seq: int) -> AsyncGenerator[KvEventBatch | Missed, None]:
        """What should have come before `seq`: fetched again where that can be, told where not."""
        if self._next is None:
            self._next = 0 if self._source.replay is not None else seq
        if seq < self._next:
            self._next = seq if self._source.replay is None else 0
            yield Missed(None)
        if self._next < seq:
            async for each in self._fetched(seq):
                yield each

    async def _fetched(self, until: int) -> AsyncGenerator[KvEventBatch | Missed, None]:
        """Batches from the next one to the one before `until`, a Missed in the place of each hole."""
        found: dict[int, bytes] = {}
        if self._source.replay is not None:
            found = await self._replayed(self._source.replay, self._next or 0)
        async for each in self._placed(found, until):
            yield each

    async def _placed(
        self, found: dict[int, bytes], until: int
    ) -> AsyncGenerator[KvEventBatch | Missed, None]:
        expected = self._next or 0
        self._next = until
        self._repeated = range(max(found, default=-1) + 1)
        for seq in sorted(number for number in found if expected <= number < until):
            if seq > expected:
                yield Missed(seq - expected)
            expected = seq + 1
            yield await self._decoded(seq, found.pop(seq))
        if expected < until:
            yield Missed(until - expected)

    async def _replayed(self, endpoint: str, start: int) -> dict[int, bytes]:
        """All that the engine still has from `start` on, within bounds."""
        found: dict[int, bytes] = {}
        with self._context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.IPV6, 1)
            socket.setsockopt(zmq.MAXMSGSIZE, self._source.max_bytes)
            socket.connect(endpoint)
            await socket.send_multipart([b"", start.to_bytes(8, "big")])
            with suppress(TimeoutError):
                async with asyncio.timeout(self._source.whole_replay_s):
                    async for seq, payload in self._pieces(socket):
                        found[seq] = payload  # noqa: PERF403  what came counts when the time is over
        return found

    async def _pieces(self, socket: zmq.asyncio.Socket) -> AsyncIterator[tuple[int, bytes]]:
        """Until the end that the engine says, or the bounds; an engine that never ends is cut off by them."""
        left = self._source.max_replayed
        for _ in range(self._source.most_replayed):
            if left <= 0 or not await socket.poll(self._source.replay_s * 1000):
                return
            frames = await socket.recv_multipart()
            await asyncio.sleep(0)
            seq = int.from_bytes(frames[-2], "big", signed=True) if len(frames) > 1 else _END_OF_REPLAY
            if seq == _END_OF_REPLAY:
                return
            yield seq, frames[-1]
            left -= len(frames[-1])

    async def _decoded(self, seq: int, payload: bytes) -> KvEventBatch | Missed:
        """What cannot be read may have said anything: it is missed."""
        try:
            if len(payload) > _LARGE:
                batch = await asyncio.to_thread(decode_batch, seq, payload)
            else:
                batch = decode_batch(seq, payload)
        except MalformedEventsError:
            self.malformed += 1
            return Missed(1)
        self._at = batch.at
        return batch
