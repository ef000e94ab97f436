"""KV events of both engines are read in every form they come in, and no batch is missed in silence."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import zmq
import zmq.asyncio
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.remote.kv_event_stream import KvEventSource, KvEventStream
from engine_adapters.remote.kv_events import (
    AllCleared,
    BlocksRemoved,
    BlocksStored,
    KvEventBatch,
    MalformedEventsError,
    Missed,
    decode_batch,
)
from tests.exchanges import FOLDER
from tests.waiting import PATIENCE_S, until

encode = msgspec.msgpack.encode


def cleared(seq: int, at: float | None = None) -> bytes:
    return encode([float(seq) if at is None else at, [{"type": "AllBlocksCleared"}], 0])


def test_events_as_maps_are_read():
    stored = {
        "type": "BlockStored", "block_hashes": [1, b"two"], "parent_block_hash": None, "token_ids": [5, 6, 7, 8],
        "block_size": 2, "lora_id": None, "medium": "CPU_PINNED", "cache_salt": "s", "session_id": "new here",
    }  # fmt: skip
    removed = {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU"}
    batch = decode_batch(
        3, encode([1.5, [stored, removed, {"type": "AllBlocksCleared"}, {"type": "Moved"}], 2])
    )
    assert batch == KvEventBatch(
        3,
        1.5,
        2,
        (
            BlocksStored((1, b"two"), None, (5, 6, 7, 8), 2, "host", "s"),
            BlocksRemoved((1,), "device"),
            AllCleared(),
        ),
        unknown=1,
    )


def test_events_as_lists_are_read():
    events = [["BlockStored", [1], 9, [5, 6], 2, None, "DISK"], ["BlockRemoved", [1]], ["AllBlocksCleared"]]
    assert decode_batch(0, encode([1.0, events])).events == (
        BlocksStored((1,), 9, (5, 6), 2, "disk"),
        BlocksRemoved((1,), "device"),
        AllCleared(),
    )


@pytest.mark.parametrize(
    ("extra", "lora", "salt"),
    [
        ([["tenant a"], None], None, "tenant a"),
        ([["adapter", "tenant a"]], "adapter", "tenant a"),
        ([["adapter"]], "adapter", None),
        ([None], None, None),
    ],
)
def test_a_salt_among_vllm_s_extra_keys_is_found(extra: list, lora: str | None, salt: str | None):
    event = {"type": "BlockStored", "block_hashes": [1], "token_ids": [1], "block_size": 1} | {
        "extra_keys": extra,
        "lora_name": lora,
    }
    assert decode_batch(0, encode([1.0, [event]])).events[0].salt == salt


@pytest.mark.parametrize(
    ("extra", "plain"),
    [(None, None), ([None, None], None), ([["salt"], None], None), ([None, [["image", 3]]], 1),
     ([["salt", ["i", 0]]], 0), ([["a", "b"], None], 0), ([["salt"], ["later"]], 1)],
)  # fmt: skip
def test_blocks_with_media_or_what_is_unknown_in_them_are_told(extra: list | None, plain: int | None):
    event = {"type": "BlockStored", "block_hashes": [1, 2], "token_ids": [1, 2], "block_size": 1}
    assert decode_batch(0, encode([1.0, [event | {"extra_keys": extra}]])).events[0].plain == plain


def test_groups_of_layers_are_told_apart():
    event = {
        "type": "BlockStored",
        "block_hashes": [7],
        "parent_block_hash": 6,
        "token_ids": [1],
        "block_size": 1,
    }
    other = event | {"group_idx": 1, "kv_cache_spec_kind": "sliding_window"}
    removed = {"type": "BlockRemoved", "block_hashes": [7], "group_idx": 1}
    one, two, gone = decode_batch(0, encode([1.0, [event | {"group_idx": 0}, other, removed]])).events
    assert (one.hashes, one.parent, one.whole_prefix) == ((7,), 6, True)
    assert (two.hashes, two.parent, two.whole_prefix) == (("1:7",), "1:6", False)
    assert gone.hashes == two.hashes


@pytest.mark.parametrize("hashes", [[[1]], [{}], ["text"], [b"x" * 100], [None], 5])
def test_a_hash_of_another_kind_is_malformed(hashes: object):
    with pytest.raises(MalformedEventsError):
        decode_batch(0, encode([1.0, [{"type": "BlockRemoved", "block_hashes": hashes}]]))


@given(st.binary(max_size=60) | st.recursive(
    st.none() | st.integers(0, 9) | st.sampled_from(["BlockStored", "type"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["type", "x"]), inner, max_size=2),
    max_leaves=12,
).map(encode))  # fmt: skip
def test_whatever_comes_is_a_batch_or_malformed(payload: bytes):
    with suppress(MalformedEventsError):
        assert decode_batch(0, payload).seq == 0


@pytest.mark.parametrize("name", ["vllm_events", "sglang_events"])
def test_what_the_real_engines_published_is_read(name: str):
    recorded = json.loads((FOLDER / f"{name}.json").read_text())
    batches = [decode_batch(each["seq"], base64.b64decode(each["payload"])) for each in recorded["batches"]]
    events = [event for batch in batches for event in batch.events]
    assert sum(batch.unknown for batch in batches) == 0
    stored = [event for event in events if isinstance(event, BlocksStored)]
    for event in stored:
        assert event.block_size == recorded["block_size"]
        assert len(event.token_ids) == len(event.hashes) * event.block_size
        assert event.tier == "device"
    plain, salted = (next(event for event in stored if event.salt == salt) for salt in (None, "tenant a"))
    assert plain.token_ids[:128] == salted.token_ids[:128] == tuple(recorded["prompt"][:128])
    assert set(plain.hashes).isdisjoint(salted.hashes)
    assert any(isinstance(event, AllCleared) for event in events)


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
