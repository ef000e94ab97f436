"""Frames over the socket, and events cut to what they add."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.base import GenerateRequest, SamplingParams
from engine_adapters.sglang_process.native import NativeStream
from engine_adapters.sglang_process.worker import (
    MAX_FRAME,
    BrokenFrameError,
    Deltas,
    frame_bytes,
    read_frame,
)

texts = st.text(st.characters(), max_size=30)


def frames_in(data: bytes) -> list[dict]:
    async def read() -> list[dict]:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        frames = []
        while (frame := await read_frame(reader)) is not None:
            frames.append(frame)
        return frames

    return asyncio.run(read())


@given(st.lists(st.dictionaries(texts, texts | st.integers() | st.none(), max_size=3), max_size=4))
def test_frames_come_back_as_they_were_sent(frames: list[dict]):
    assert frames_in(b"".join(map(frame_bytes, frames))) == frames


def test_a_frame_that_is_cut_is_the_end():
    assert frames_in(frame_bytes({"a": 1}) + frame_bytes({"b": 2})[:-1]) == [{"a": 1}]


@pytest.mark.parametrize(
    "data", [b"\x00\x00\x00\x02{]", b"\x00\x00\x00\x02[]", (MAX_FRAME + 1).to_bytes(4, "big")]
)
def test_what_is_no_frame_is_refused(data: bytes):
    with pytest.raises(BrokenFrameError):
        frames_in(data)


@given(st.lists(texts, min_size=1, max_size=6), st.integers(0, 10))
def test_what_is_cut_to_its_additions_reads_as_the_whole_did(parts: list[str], shorter: int):
    """Texts grow, and may be shorter at the end, where a stop string is cut off."""
    whole = ["".join(parts[: i + 1]) for i in range(len(parts))]
    whole[-1] = whole[-1][: max(0, len(whole[-1]) - shorter)]
    events = [
        {"text": text, "meta_info": {"completion_tokens": i + 1, "finish_reason": None}}
        for i, text in enumerate(whole)
    ]
    events[-1]["meta_info"]["finish_reason"] = {"type": "length"}
    direct, cut = _stream(), _stream()
    deltas = Deltas()
    assert [direct.read(event) for event in events] == [cut.read(deltas.of(event)) for event in events]


def _stream() -> NativeStream:
    import numpy as np

    return NativeStream(GenerateRequest("r", "completions", "m", np.zeros(1, np.int32), SamplingParams()))
