"""Frames: 4 bytes of length, big-endian, and one MessagePack value. Nothing that comes can name code to run."""

from collections.abc import Iterator
from typing import Any

import msgspec

from engine_adapters.rpc.errors import FrameError

MAX_FRAME = 64 << 20  # bytes; a prompt of 16 million tokens
HEAD = 4

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def frame_of(value: Any) -> bytes:
    """One value as it goes over a socket; raises FrameError where it is too large, or cannot be sent."""
    try:
        body = _encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise FrameError(f"a value cannot be sent: {type(error).__name__}") from error
    if len(body) > MAX_FRAME:
        raise FrameError(f"a frame of {len(body)} bytes; the limit is {MAX_FRAME}")
    return len(body).to_bytes(HEAD, "big") + body


def size_in(head: bytes | bytearray) -> int:
    """The length that a frame's head says; raises FrameError where it is too large."""
    size = int.from_bytes(head, "big")
    if size > MAX_FRAME:
        raise FrameError(f"a frame of {size} bytes; the limit is {MAX_FRAME}")
    return size


def value_in(body: bytes | bytearray | memoryview) -> Any:
    """The value of a frame's body; raises FrameError."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError("a frame that is no MessagePack") from error


class FrameSplitter:
    """Cuts what arrives into values."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """The values that are whole now; raises FrameError."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= HEAD:
            size = size_in(bytes(buffer[start : start + HEAD]))
            if len(buffer) - start - HEAD < size:
                break
            start += HEAD
            yield value_in(bytes(buffer[start : start + size]))
            start += size
        if start:
            del buffer[:start]
