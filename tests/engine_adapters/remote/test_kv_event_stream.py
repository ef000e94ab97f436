"""No batch is missed in silence, whatever is lost on the way, begins anew, or does not end."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
import zmq
import zmq.asyncio

from engine_adapters.remote.kv_event_stream import KvEventSource, KvEventStream
from engine_adapters.remote.kv_events import AllCleared, KvEventBatch, Missed, decode_batch
from tests.waiting import PATIENCE_S, until

encode = msgspec.msgpack.encode


def cleared(seq: int, at: float | None = None) -> bytes:
    return encode([float(seq) if at is None else at, [{"type": "AllBlocksCleared"}], 0])


async def subscribed(events: zmq.asyncio.Socket) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not (await events.recv()).startswith(b"\x01"):
            pass


class Publisher:
    """Publishes as the engines do, and gives out again what it has kept."""

    def __init__(self, folder: Path) -> None:
        self._context = zmq.asyncio.Context()
        self.events = self._context.socket(zmq.XPUB)  # which tells, unlike PUB, who subscribes
        self.replay = self._context.socket(zmq.ROUTER)
        self.endpoint, self.replay_endpoint = f"ipc://{folder}/events", f"ipc://{folder}/replay"
        self.events.bind(self.endpoint)
        self.replay.bind(self.replay_endpoint)
        self.kept: dict[int, bytes] = {}
        self.sent = 0
        self._answering = asyncio.ensure_future(self._answer())

    async def subscribed(self) -> None:
        """A subscription has arrived: what is sent from now on is heard."""
        await subscribed(self.events)

    async def send(self, seq: int, payload: bytes | None = None, keep: bool = True) -> None:
        self.sent += 1
        payload = cleared(seq, 100.0 + self.sent) if payload is None else payload
        if keep:
            self.kept[seq] = payload
        await self.events.send_multipart([b"kv", seq.to_bytes(8, "big"), payload])

    async def _answer(self) -> None:
        while True:
            client, _, start = await self.replay.recv_multipart()
            for seq, payload in sorted(self.kept.items()):
                if seq >= int.from_bytes(start, "big"):
                    await self.replay.send_multipart([client, b"", b"kv", seq.to_bytes(8, "big"), payload])
            await self.replay.send_multipart([client, b"", b"", (-1).to_bytes(8, "big", signed=True), b""])

    def close(self) -> None:
        self._answering.cancel()
        self._context.destroy(linger=0)


@pytest.fixture
async def publisher(tmp_path: Path) -> AsyncIterator[Publisher]:
    made = Publisher(tmp_path)
    yield made
    made.close()


async def heard(
    source: KvEventSource, publisher: Publisher, sends: list[tuple[int, bool]], count: int
) -> list:
    """What a subscriber gets of these batches (number, kept for replay); a gap's batches were never sent."""
    async with KvEventStream(source) as stream:
        items = aiter(stream)
        first = asyncio.ensure_future(anext(items))
        await publisher.subscribed()
        for seq, keep in sends:
            await publisher.send(seq, keep=keep)
        async with asyncio.timeout(PATIENCE_S):
            got = [await first] + [await anext(items) for _ in range(count - 1)]
    return [item.seq if isinstance(item, KvEventBatch) else item for item in got]


async def test_batches_come_in_order(publisher: Publisher):
    source = KvEventSource(publisher.endpoint, "kv")
    assert await heard(source, publisher, [(4, True), (5, True)], 2) == [4, 5]


async def test_a_gap_is_told_with_its_size(publisher: Publisher):
    source = KvEventSource(publisher.endpoint, "kv")
    assert await heard(source, publisher, [(4, True), (7, True)], 3) == [4, Missed(2), 7]


async def test_a_gap_is_filled_where_the_engine_gives_it_out_again(publisher: Publisher):
    source = KvEventSource(publisher.endpoint, "kv", publisher.replay_endpoint)
    async with KvEventStream(source) as stream:
        items = aiter(stream)
        first = asyncio.ensure_future(anext(items))
        await publisher.subscribed()
        publisher.kept |= {seq: cleared(seq) for seq in (0, 2, 3)}
        await publisher.send(4)
        async with asyncio.timeout(PATIENCE_S):
            got = [await first] + [await anext(items) for _ in range(4)]
    assert [getattr(each, "seq", each) for each in got] == [0, Missed(1), 2, 3, 4]


async def test_what_an_idle_engine_has_published_is_fetched_at_once(publisher: Publisher):
    publisher.kept = {seq: cleared(seq) for seq in (1, 2)}
    source = KvEventSource(publisher.endpoint, "kv", publisher.replay_endpoint)
    async with KvEventStream(source) as stream, asyncio.timeout(PATIENCE_S):
        items = aiter(stream)
        got = [await anext(items) for _ in range(3)]
    assert [getattr(each, "seq", each) for each in got] == [Missed(1), 1, 2]


async def test_what_was_fetched_before_it_came_is_no_new_start(publisher: Publisher):
    publisher.kept = {seq: cleared(seq) for seq in range(5)}
    source = KvEventSource(publisher.endpoint, "kv", publisher.replay_endpoint)
    async with KvEventStream(source) as stream, asyncio.timeout(PATIENCE_S):
        items = aiter(stream)
        got = [(await anext(items)).seq for _ in range(5)]
        await publisher.subscribed()
        for seq in (3, 4):
            await publisher.send(seq, cleared(seq))
        await publisher.send(5)
        got.append((await anext(items)).seq)
    assert got == [0, 1, 2, 3, 4, 5]


async def test_it_says_whether_the_engine_is_connected(publisher: Publisher):
    async with KvEventStream(KvEventSource(publisher.endpoint, "kv")) as stream, asyncio.timeout(PATIENCE_S):
        await until(lambda: stream.connected, "it is connected")
        publisher.events.close(linger=0)
        await until(lambda: not stream.connected, "it has gone")


async def test_an_engine_that_starts_anew_voids_what_was_known(publisher: Publisher):
    source = KvEventSource(publisher.endpoint, "kv")
    assert await heard(source, publisher, [(9, True), (0, True)], 3) == [9, Missed(None), 0]


async def test_an_engine_that_starts_anew_is_followed_from_its_first_batch(publisher: Publisher):
    publisher.kept = {0: cleared(0), 1: cleared(1)}
    source = KvEventSource(publisher.endpoint, "kv", publisher.replay_endpoint)
    async with KvEventStream(source) as stream, asyncio.timeout(PATIENCE_S):
        items = aiter(stream)
        got = [await anext(items) for _ in range(2)]
        await publisher.subscribed()
        await publisher.send(2)
        got.append(await anext(items))
        await publisher.send(1)
        got += [await anext(items) for _ in range(3)]
    assert [getattr(each, "seq", each) for each in got] == [0, 1, 2, Missed(None), 0, 1]


async def test_a_flood_of_what_is_no_batch_leaves_others_their_turns(publisher: Publisher):
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with KvEventStream(KvEventSource(publisher.endpoint, "kv")) as stream, asyncio.timeout(PATIENCE_S):
        first = asyncio.ensure_future(anext(aiter(stream)))
        await publisher.subscribed()
        other = asyncio.ensure_future(others())
        await until(lambda: turns, "they have begun")
        before = turns
        for _ in range(500):
            publisher.events.send_multipart([b"kv", b"short"]).result()  # all of them, before anybody reads
        publisher.events.send_multipart([b"kv", (0).to_bytes(8, "big"), cleared(0)]).result()
        assert (await first).seq == 0
        other.cancel()
    assert stream.malformed == 500
    assert turns - before > 250


async def test_what_is_no_batch_is_missed_and_the_stream_goes_on(publisher: Publisher):
    async with KvEventStream(KvEventSource(publisher.endpoint, "kv")) as stream:
        items = aiter(stream)
        first = asyncio.ensure_future(anext(items))
        await publisher.subscribed()
        await publisher.send(0, b"\xc1")
        await publisher.events.send_multipart([b"kv", b"short"])
        await publisher.send(1)
        async with asyncio.timeout(PATIENCE_S):
            assert await first == Missed(1)  # it may have said anything
            assert (await anext(items)).seq == 1
        assert stream.malformed == 2


async def test_an_engine_that_connects_is_heard(tmp_path: Path):
    endpoint = f"ipc://{tmp_path}/ours"
    context = zmq.asyncio.Context()
    async with KvEventStream(KvEventSource(endpoint, bind=True)) as stream:
        items = aiter(stream)
        first = asyncio.ensure_future(anext(items))
        with context.socket(zmq.XPUB) as engine:
            engine.connect(endpoint)
            await subscribed(engine)
            await engine.send_multipart([b"", (0).to_bytes(8, "big"), cleared(0)])
            async with asyncio.timeout(PATIENCE_S):
                assert (await first).events == (AllCleared(),)
    context.destroy(linger=0)


async def test_an_address_that_is_none_leaves_nothing_open():
    """ZeroMQ waits without an end for what is left open, when it is collected."""
    stream = KvEventStream(KvEventSource("tcp://nowhere"))
    with pytest.raises(zmq.ZMQError):
        async with stream:
            pass
    assert stream._context.closed


async def test_streams_share_threads_and_files_and_leave_none():
    def taken() -> tuple[int, int]:
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    threads, files = taken()
    for _ in range(2):
        async with AsyncExitStack() as stack:
            for number in range(40):
                await stack.enter_async_context(KvEventStream(KvEventSource(f"ipc://@nobody-{number}")))
            assert taken()[0] - threads < 40
        await until(lambda: taken()[0] <= threads and taken()[1] <= files)


class Endless(Publisher):
    """Gives out one batch again and again, or one every now and then, and never says that this is all."""

    pause_s = 0.0

    async def _answer(self) -> None:
        client, _, start = await self.replay.recv_multipart()
        for number in itertools.count():
            seq = int.from_bytes(start, "big") + (number if self.pause_s else 0)
            payload = cleared(seq) if self.pause_s else b""
            await self.replay.send_multipart([client, b"", b"kv", seq.to_bytes(8, "big"), payload])
            await asyncio.sleep(self.pause_s)


@pytest.mark.parametrize("pause_s", [0.0, 0.02])
async def test_a_replay_without_an_end_is_cut_off_and_what_is_new_is_heard(tmp_path: Path, pause_s: float):
    made = Endless(tmp_path)
    made.pause_s = pause_s
    # The first one is cut off by how many there are at most, the second one by time.
    whole_s = 0.5 if pause_s else PATIENCE_S
    source = KvEventSource(
        made.endpoint, "kv", made.replay_endpoint, whole_replay_s=whole_s, most_replayed=500, replay_s=1.0
    )
    try:
        async with KvEventStream(source) as stream, asyncio.timeout(PATIENCE_S):
            seen, items = [], aiter(stream)
            first = asyncio.ensure_future(anext(items))
            await made.subscribed()
            await made.send(5000)
            seen.append(await first)
            while getattr(seen[-1], "seq", 0) != 5000:
                seen.append(await anext(items))
            assert any(isinstance(each, Missed) for each in seen)
    finally:
        made.close()


@pytest.mark.parametrize("kept", [True, False])
async def test_an_engine_that_starts_anew_with_a_clock_that_is_behind_voids_what_was_known(
    publisher: Publisher, kept: bool
):
    source = KvEventSource(publisher.endpoint, "kv", publisher.replay_endpoint if kept else None)
    async with KvEventStream(source) as stream, asyncio.timeout(PATIENCE_S):
        items = aiter(stream)
        first = asyncio.ensure_future(anext(items))
        await publisher.subscribed()
        for seq in range(3):
            await publisher.send(seq)
        got = [await first] + [await anext(items) for _ in range(2)]
        publisher.kept = {}
        for seq in range(2):
            await publisher.send(seq, cleared(seq, 1.0 + seq))
        got += [await anext(items) for _ in range(3)]
    assert [getattr(each, "seq", each) for each in got] == [0, 1, 2, Missed(None), 0, 1]


async def test_what_is_on_its_way_when_everything_begins_anew_does_not_count(publisher: Publisher):
    publisher.kept = {seq: cleared(seq) for seq in range(5)}
    source = KvEventSource(publisher.endpoint, "kv", publisher.replay_endpoint)
    async with KvEventStream(source) as stream, asyncio.timeout(PATIENCE_S):
        items = aiter(stream)
        got = [(await anext(items)).seq for _ in range(2)]
        stream.begin_anew()
        await publisher.subscribed()
        await publisher.send(5)
        got += [(await anext(items)).seq for _ in range(6)]
    assert got == [0, 1, 0, 1, 2, 3, 4, 5]


async def test_a_large_batch_is_read_as_a_small_one(publisher: Publisher):
    tokens = list(range(40_000))
    stored = {
        "type": "BlockStored", "block_hashes": list(range(2_500)), "parent_block_hash": None, "token_ids": tokens,
        "block_size": 16, "lora_id": None, "medium": "GPU",
    }  # fmt: skip
    async with KvEventStream(KvEventSource(publisher.endpoint, "kv")) as stream, asyncio.timeout(PATIENCE_S):
        items = aiter(stream)
        first = asyncio.ensure_future(anext(items))
        await publisher.subscribed()
        large, broken = encode([1.0, [stored], 0]), encode([None, [stored], 0])
        for seq, payload in enumerate((large, broken, large)):
            await publisher.send(seq, payload)
        got = [await first] + [await anext(items) for _ in range(2)]
    assert got == [decode_batch(0, large), Missed(1), decode_batch(2, large)]
