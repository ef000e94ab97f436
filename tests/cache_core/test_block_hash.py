"""A block's hash stands for the block and everything before it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_core.block_hash import MediaSpan, chain_hashes, root_hash
from cache_core.tokens import Tokens

ROOT = root_hash(b"i" * 32)
TOKENS = st.lists(st.integers(0, 3), max_size=24).map(lambda ids: np.array(ids, dtype=np.int32))
MEDIA = st.lists(st.builds(MediaSpan, st.integers(0, 23), st.sampled_from([b"cat", b"dog"])), max_size=3)


def array(*ids: int) -> Tokens:
    return np.array(ids, dtype=np.int32)


@given(TOKENS, TOKENS, st.sampled_from([1, 2, 4]))
def test_equal_exactly_where_the_prefixes_are(a: Tokens, b: Tokens, block: int) -> None:
    left, right = chain_hashes(ROOT, a, block), chain_hashes(ROOT, b, block)
    assert len(left) == len(a) // block
    for i, (x, y) in enumerate(zip(left, right, strict=False)):
        end = (i + 1) * block
        assert (x == y) == bool((a[:end] == b[:end]).all())


@given(TOKENS, MEDIA, st.sampled_from([1, 2, 4]), st.integers(0, 24))
def test_going_on_from_a_parent_gives_the_same(
    tokens: Tokens, media: list[MediaSpan], block: int, at: int
) -> None:
    whole = chain_hashes(ROOT, tokens, block, media)
    done = min(at, len(whole))
    parent = whole[done - 1] if done else None
    rest = chain_hashes(ROOT, tokens[done * block :], block, media, parent, done * block)
    assert whole[:done] + rest == whole


@given(TOKENS, MEDIA, MEDIA, st.sampled_from([1, 2, 4]))
def test_media_count_from_their_offset_on(
    tokens: Tokens, first: list[MediaSpan], second: list[MediaSpan], block: int
) -> None:
    a, b = chain_hashes(ROOT, tokens, block, first), chain_hashes(ROOT, tokens, block, second)
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        end = (i + 1) * block

        def before(media: list[MediaSpan], end: int = end) -> list[tuple[int, bytes]]:
            return sorted((span.offset, span.hash) for span in media if span.offset < end)

        assert (x == y) == (before(first) == before(second))


def test_another_root_shares_nothing() -> None:
    tokens = array(1, 2, 3, 4)
    other = chain_hashes(root_hash(b"j" * 32), tokens, 2)
    assert not set(chain_hashes(ROOT, tokens, 2)) & set(other)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_part_of_a_block_has_no_hash(n: int) -> None:
    assert chain_hashes(ROOT, array(*range(n)), 4) == []
