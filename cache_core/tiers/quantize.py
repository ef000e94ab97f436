"""Lossy storage of cold blocks: int8 with a scale a group, used only where the error it makes is within a bound."""

import struct
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cache_core.block_header import BadBlockError, DropReason

FloatType: TypeAlias = Literal["float32", "float16", "bfloat16"]

_TYPES: tuple[FloatType, ...] = ("float32", "float16", "bfloat16")
_ITEM_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}
_HEAD = struct.Struct("<BxHI")  # type, group, elements
_LEVELS = 127


@dataclass(frozen=True, slots=True)
class Quantization:
    """How far stored values may be from the real ones.

    What comes back is not what was put, bit for bit. Whoever switches this on says so in the identity's state
    format, so that exact and lossy blocks never mix.
    """

    dtype: FloatType  # of the payload's elements
    max_error: float  # root mean square of the errors over that of the values, in each block
    group: int = 64  # neighbouring elements that share a scale

    def encode(self, payload: memoryview) -> bytes | None:
        """The int8 form; None where the payload is not whole groups of finite floats, or the error too large."""
        values = _floats(payload, self.dtype)
        if values is None or not len(values) or len(values) % self.group or not np.isfinite(values).all():
            return None
        groups = values.reshape(-1, self.group)
        scales = np.maximum(np.abs(groups).max(axis=1) / _LEVELS, np.finfo(np.float32).tiny)
        levels = np.rint(groups / scales[:, None]).astype(np.int8)
        if self._error(groups, levels, scales) > self.max_error:
            return None
        head = _HEAD.pack(_TYPES.index(self.dtype), self.group, len(values))
        return b"".join((head, scales.astype("<f4").tobytes(), levels.tobytes()))

    def _error(
        self, groups: NDArray[np.float32], levels: NDArray[np.int8], scales: NDArray[np.float32]
    ) -> float:
        # measured on what a reader gets, the rounding to the payload's type included
        back = _floats(memoryview(_bytes(levels * scales[:, None], self.dtype)), self.dtype)
        assert back is not None
        wrong = np.square(back.reshape(groups.shape) - groups, dtype=np.float64).sum()
        total = np.square(groups, dtype=np.float64).sum()
        return float(np.sqrt(wrong / total)) if total else 0.0


def dequantized(data: memoryview) -> bytes:
    """The payload of an int8 form.

    Raises:
        BadBlockError: UNDECODABLE.
    """
    if len(data) < _HEAD.size:
        raise BadBlockError(DropReason.UNDECODABLE)
    kind, group, count = _HEAD.unpack(data[: _HEAD.size])
    groups = count // group if group else 0
    if kind >= len(_TYPES) or not groups or len(data) != _HEAD.size + groups * (4 + group):
        raise BadBlockError(DropReason.UNDECODABLE)
    scales = np.frombuffer(data, dtype="<f4", count=groups, offset=_HEAD.size)
    levels = np.frombuffer(data, dtype=np.int8, offset=_HEAD.size + groups * 4).reshape(groups, group)
    return _bytes(levels * scales[:, None], _TYPES[kind])


def _floats(payload: memoryview, dtype: FloatType) -> NDArray[np.float32] | None:
    """The elements as float32 [n]; None where the length does not divide."""
    if len(payload) % _ITEM_SIZES[dtype]:
        return None
    if dtype == "bfloat16":  # the upper half of a float32
        return (np.frombuffer(payload, dtype="<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(payload, dtype="<f4" if dtype == "float32" else "<f2").astype(np.float32)


def _bytes(values: NDArray[np.float32], dtype: FloatType) -> bytes:
    values = np.ascontiguousarray(values, dtype=np.float32)
    if dtype == "bfloat16":
        bits = values.view(np.uint32)
        # round to nearest, ties to even; all values are finite
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
        return rounded.astype("<u2").tobytes()
    return values.astype("<f4" if dtype == "float32" else "<f2").tobytes()
