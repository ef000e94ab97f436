"""Two images with the same placeholders share the text before them, and nothing behind."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_core import BlockPool, PrefixCache
from cache_core.block_hash import chain_hashes, root_hash
from cache_core.media import MediaSpan, with_media
from cache_core.tokens import Tokens

ROOT = root_hash(b"i" * 32)
BLOCK = 4
PLACEHOLDER = 9


@st.composite
def prompts(draw: st.DrawFn) -> tuple[Tokens, list[MediaSpan]]:
    """Pieces of text and media by turns."""
    ids: list[int] = []
    media: list[MediaSpan] = []
    for content in draw(st.lists(st.sampled_from([b"cat", b"dog"]), max_size=3)):
        ids += draw(st.lists(st.integers(0, 3), max_size=6))
        length = draw(st.integers(4, 9))
        media.append(MediaSpan(len(ids), length, content))
        ids += [PLACEHOLDER] * length
    ids += draw(st.lists(st.integers(0, 3), max_size=6))
    return np.array(ids, dtype=np.int32), media


def shown(tokens: Tokens, media: list[MediaSpan], end: int) -> tuple[list[int], list[tuple[int, int, bytes]]]:
    """What the KV of the first `end` tokens depends on."""
    begun = [(span.offset, span.length, span.hash) for span in media if span.offset < end]
    return tokens[:end].tolist(), begun


@settings(max_examples=300)
@given(first=prompts(), second=prompts())
def test_blocks_are_the_same_exactly_where_text_and_media_begun_before_their_end_are(
    first: tuple[Tokens, list[MediaSpan]], second: tuple[Tokens, list[MediaSpan]]
) -> None:
    chains = [chain_hashes(ROOT, with_media(*prompt, BLOCK), BLOCK) for prompt in (first, second)]
    for block, (x, y) in enumerate(zip(*chains, strict=False), start=1):
        assert (x == y) == (shown(*first, block * BLOCK) == shown(*second, block * BLOCK))


@pytest.mark.parametrize("offset", range(8))
def test_all_of_a_mediums_hash_is_in_the_block_where_it_begins(offset: int) -> None:
    """Wherever that is cut: 31 bits, of one placeholder, would be found twice among some ten thousand images."""
    tokens = np.array([*range(offset), *[PLACEHOLDER] * 8], dtype=np.int32)
    marked = with_media(tokens, [MediaSpan(offset, 8, b"cat")], BLOCK)
    block = slice(offset // BLOCK * BLOCK, (offset // BLOCK + 1) * BLOCK)
    assert (marked[block] < 0).sum() == 4
    assert marked[: block.start].tolist() == tokens[: block.start].tolist()
    assert (marked[block.stop :] >= 0).all()


def test_in_the_index_the_text_before_an_image_is_shared_and_what_follows_is_not() -> None:
    tokens = np.array([1, 2, 3, 4, *[PLACEHOLDER] * 8, 5, 6, 7, 8], dtype=np.int32)
    cat, dog = (with_media(tokens, [MediaSpan(4, 8, content)], BLOCK) for content in (b"cat", b"dog"))
    cache = PrefixCache(BlockPool(16, BLOCK))
    lease = cache.acquire(cat)
    lease.extend(cat)
    lease.commit()
    lease.release()
    assert cache.match(cat) == len(tokens)
    assert cache.match(dog) == BLOCK
    assert (tokens >= 0).all()  # what the model gets is as it was


@pytest.mark.parametrize(
    "spans",
    [
        [MediaSpan(0, 3, b"x")],
        [MediaSpan(-1, 4, b"x")],
        [MediaSpan(5, 8, b"x")],
        [MediaSpan(0, 5, b"x"), MediaSpan(4, 4, b"y")],
    ],
)
def test_spans_that_cannot_be_are_refused(spans: list[MediaSpan]) -> None:
    with pytest.raises(ValueError, match="the medium at token"):
        with_media(np.zeros(12, dtype=np.int32), spans, BLOCK)


def test_blocks_that_are_too_small_for_a_hash_are_refused() -> None:
    with pytest.raises(ValueError, match="no room"):
        with_media(np.zeros(12, dtype=np.int32), [], 3)
