"""Token ids as flat int32 arrays, and how they are compared."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Tokens = NDArray[np.int32]
INT32 = np.dtype(np.int32)  # a dtype object: numpy would look its type up with every call
TOKEN_BYTES = 4
_CHUNK = 16_384  # tokens compared at once, so that an early difference ends a long compare early


def as_tokens(tokens: ArrayLike) -> Tokens:
    """`tokens` as one contiguous int32 array [n]; no copy where it is one already."""
    if (
        type(tokens) is np.ndarray
        and tokens.dtype is INT32
        and tokens.ndim == 1
        and tokens.flags.c_contiguous
    ):
        return tokens  # nearly always, and looking is cheaper than asking numpy for it
    array = np.ascontiguousarray(tokens, dtype=np.int32)
    return array if array.ndim == 1 else array.reshape(-1)


def as_bytes(tokens: Tokens) -> memoryview:
    """The bytes of a contiguous token array, without a copy."""
    return tokens.data.cast("B") if len(tokens) else memoryview(b"")


def common_prefix(a: Tokens, b: Tokens) -> int:
    """How many leading tokens `a` and `b` have in common."""
    limit = min(len(a), len(b))
    for start in range(0, limit, _CHUNK):
        stop = min(start + _CHUNK, limit)
        differs = a[start:stop] != b[start:stop]
        first = int(differs.argmax())
        if differs[first]:
            return start + first
    return limit
