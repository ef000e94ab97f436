"""KV events of both engines are read in every form they come in."""

import base64
import json
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.remote.kv_events import (
    AllCleared,
    BlocksRemoved,
    BlocksStored,
    KvEventBatch,
    MalformedEventsError,
    decode_batch,
)
from tests.exchanges import FOLDER

encode = msgspec.msgpack.encode


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


@pytest.mark.parametrize("at", [float("nan"), float("inf"), -float("inf"), None, "now"])
def test_a_time_that_is_none_makes_no_batch(at: object):
    with pytest.raises(MalformedEventsError):
        decode_batch(0, encode([at, [], 0]))
