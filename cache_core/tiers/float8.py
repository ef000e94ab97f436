"""Eight-bit floats, e4m3fn of the OCP 8-bit floating point specification: a sign, 4 bits of exponent, 3 of mantissa.

No infinities; the largest value is 448, and steps below 2**-6 are 2**-9.
"""

import numpy as np
from numpy.typing import NDArray

LARGEST = 448.0
_LARGEST_CODE = 0x7E  # one more is not a number
_SMALLEST_NORMAL = np.float32(2.0**-6)
_STEPS = np.float32(2.0**9)  # to the smallest value
_DROPPED = 20  # bits of a float32's mantissa
_REBIASED = (127 - 7) << 3


def to_float8(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The nearest ones, of two equally near the even one; `values` are finite, and over the largest become that."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    magnitude = bits & np.uint32(0x7FFF_FFFF)
    half = np.uint32((1 << (_DROPPED - 1)) - 1)
    normal = ((magnitude + half + ((magnitude >> _DROPPED) & 1)) >> _DROPPED) - np.uint32(_REBIASED)
    absolute = magnitude.view(np.float32)
    tiny = absolute < _SMALLEST_NORMAL
    steps = np.rint(np.minimum(absolute, _SMALLEST_NORMAL) * _STEPS).astype(np.uint32)
    codes = np.minimum(np.where(tiny, steps, normal), np.uint32(_LARGEST_CODE))
    codes |= (bits >> 24) & np.uint32(0x80)
    return codes.astype(np.uint8)


def from_float8(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Their values; those that are no numbers become NaN."""
    return _VALUES[codes]


def _all_values() -> NDArray[np.float32]:
    codes = np.arange(128, dtype=np.float32)
    exponent, mantissa = np.floor(codes / 8), codes % 8
    values = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    values[127] = np.nan
    return np.concatenate([values, -values]).astype(np.float32)


_VALUES = _all_values()
