"""Lossy storage of cold blocks: one byte an element with a scale a group, only where the error is within a bound."""

import struct
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from cache_core.block_header import BadBlockError
from cache_core.drop_reason import DropReason
from cache_core.tiers.float8 import LARGEST, from_float8, to_float8

FloatType: TypeAlias = Literal["float32", "float16", "bfloat16"]
Form: TypeAlias = Literal["int8", "fp8"]

_TYPES: tuple[FloatType, ...] = get_args(FloatType)
_FORMS: tuple[Form, ...] = get_args(Form)
_TOP: dict[Form, float] = {"int8": 127.0, "fp8": LARGEST}  # what a group's largest value becomes
_ITEM_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}
_HEAD = struct.Struct("<BBHI")  # type, form, group, elements


@dataclass(frozen=True, slots=True)
class Quantization:
    """How far stored values may be from the real ones.

    What comes back is not what was put, bit for bit. Whoever switches this on says so in the identity's state
    format (`stated`), so that exact and lossy blocks never mix, nor those of two bounds.

    int8 has even steps: the better one where the values of a group are alike. fp8 (e4m3) keeps four digits of
    each value, small ones beside large ones included.
    """

    dtype: FloatType  # of the payload's elements
    max_error: float  # root mean square of the errors over that of the values, in each block
    group: int = 64  # neighbouring elements that share a scale
    form: Form = "int8"

    def __post_init__(self) -> None:
        if not 0 <= self.max_error < 1 or not 1 <= self.group < 1 << 16:
            raise ValueError(f"an error of {self.max_error} in groups of {self.group} is no bound")

    @property
    def stated(self) -> str:
        """What an identity's state format says about it."""
        return f"{self.form} in groups of {self.group}, error {self.max_error!r} at most"

    def encode(self, payload: memoryview) -> bytes | None:
        """The small form; None where the payload is not whole groups of finite floats, or the error too large."""
        values = _floats(payload, self.dtype)
        if values is None or not len(values) or len(values) % self.group or not np.isfinite(values).all():
            return None
        groups = values.reshape(-1, self.group)
        scales = np.maximum(np.abs(groups).max(axis=1) / _TOP[self.form], np.finfo(np.float32).tiny)
        levels = _levels(groups / scales[:, None], self.form)
        if not self._error(groups, levels, scales) <= self.max_error:
            return None
        head = _HEAD.pack(_TYPES.index(self.dtype), _FORMS.index(self.form), self.group, len(values))
        return b"".join((head, scales.astype("<f4").tobytes(), levels.tobytes()))

    def _error(
        self, groups: NDArray[np.float32], levels: NDArray[np.uint8], scales: NDArray[np.float32]
    ) -> float:
        # measured on what a reader gets, the rounding to the payload's type included
        back = _floats(memoryview(_bytes(_values(levels, scales, self.form), self.dtype)), self.dtype)
        assert back is not None
        wrong = np.square(back.reshape(groups.shape) - groups, dtype=np.float64).sum()
        total = np.square(groups, dtype=np.float64).sum()
        return float(np.sqrt(wrong / total)) if total else 0.0


def dequantized(data: memoryview) -> bytes:
    """The payload of a small form.

    Raises:
        BadBlockError: UNDECODABLE.
    """
    if len(data) < _HEAD.size:
        raise BadBlockError(DropReason.UNDECODABLE)
    kind, form, group, count = _HEAD.unpack(data[: _HEAD.size])
    groups = count // group if group else 0
    known = kind < len(_TYPES) and form < len(_FORMS)
    if not known or not groups or len(data) != _HEAD.size + groups * (4 + group):
        raise BadBlockError(DropReason.UNDECODABLE)
    scales = np.frombuffer(data, dtype="<f4", count=groups, offset=_HEAD.size)
    levels = np.frombuffer(data, dtype=np.uint8, offset=_HEAD.size + groups * 4).reshape(groups, group)
    return _bytes(_values(levels, scales, _FORMS[form]), _TYPES[kind])


def _levels(scaled: NDArray[np.float32], form: Form) -> NDArray[np.uint8]:
    return to_float8(scaled) if form == "fp8" else np.rint(scaled).astype(np.int8).view(np.uint8)


def _values(levels: NDArray[np.uint8], scales: NDArray[np.float32], form: Form) -> NDArray[np.float32]:
    plain = from_float8(levels) if form == "fp8" else levels.view(np.int8).astype(np.float32)
    return plain * scales[:, None]


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
