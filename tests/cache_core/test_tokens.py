import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cache_core.tokens import as_bytes, as_tokens, common_prefix


def test_int32_arrays_pass_without_a_copy() -> None:
    tokens = np.arange(5, dtype=np.int32)
    assert as_tokens(tokens) is tokens


def test_lists_and_strided_arrays_become_flat_int32() -> None:
    assert as_tokens([1, 2]).dtype == np.int32
    strided = np.arange(10, dtype=np.int32)[::2]
    assert as_tokens(strided).flags.c_contiguous
    assert as_tokens(strided).tolist() == [0, 2, 4, 6, 8]


def test_bytes_of_nothing_are_nothing() -> None:
    assert as_bytes(as_tokens([])).nbytes == 0


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)), st.sampled_from([0, 16_383, 16_384, 40_000]))
def test_common_prefix_ends_at_the_first_difference(a: list[int], b: list[int], shared: int) -> None:
    start = [7] * shared
    naive = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_prefix(as_tokens(start + a), as_tokens(start + b)) == shared + naive
