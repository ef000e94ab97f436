import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cache_core.eviction.short_hash import KEY_BYTES, ShortHash


@given(arrays(np.int32, (6, 4), elements=st.integers(-(2**31), 2**31 - 1)))
def test_blocks_are_equal_when_their_keys_are(
    blocks: "np.ndarray[tuple[int, int], np.dtype[np.int32]]",
) -> None:
    keys = ShortHash(4, seed=1)(blocks.reshape(-1))
    named = [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)]
    for block, key in zip(blocks.tolist(), named, strict=True):
        assert [other == key for other in named] == [other == block for other in blocks.tolist()]


def test_keys_differ_from_one_process_to_the_next() -> None:
    tokens = np.arange(16, dtype=np.int32)
    assert ShortHash(16)(tokens) != ShortHash(16)(tokens)
