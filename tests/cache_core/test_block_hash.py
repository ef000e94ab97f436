"""A block's hash stands for the block and everything before it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_core.block_hash import chain_hashes, root_hash
from cache_core.tokens import Tokens

ROOT = root_hash(b"i" * 32)
TOKENS = st.lists(st.integers(0, 3), max_size=24).map(lambda ids: np.array(ids, dtype=np.int32))


def array(*ids: int) -> Tokens:
    return np.array(ids, dtype=np.int32)


@given(TOKENS, TOKENS, st.sampled_from([1, 2, 4]))
def test_equal_exactly_where_the_prefixes_are(a: Tokens, b: Tokens, block: int) -> None:
    left, right = chain_hashes(ROOT, a, block), chain_hashes(ROOT, b, block)
    assert len(left) == len(a) // block
    for i, (x, y) in enumerate(zip(left, right, strict=False)):
        end = (i + 1) * block
        assert (x == y) == bool((a[:end] == b[:end]).all())


@given(TOKENS, st.sampled_from([1, 2, 4]), st.integers(0, 24))
def test_going_on_from_a_parent_gives_the_same(tokens: Tokens, block: int, at: int) -> None:
    whole = chain_hashes(ROOT, tokens, block)
    done = min(at, len(whole))
    parent = whole[done - 1] if done else None
    assert whole[:done] + chain_hashes(ROOT, tokens[done * block :], block, parent) == whole


def test_another_root_shares_nothing() -> None:
    tokens = array(1, 2, 3, 4)
    other = chain_hashes(root_hash(b"j" * 32), tokens, 2)
    assert not set(chain_hashes(ROOT, tokens, 2)) & set(other)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_part_of_a_block_has_no_hash(n: int) -> None:
    assert chain_hashes(ROOT, array(*range(n)), 4) == []
