"""Two images with the same placeholders share the text before them, and nothing behind."""

import numpy as np
import pytest
from hypothesis import given
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


@given(first=prompts(), second=prompts())
def test_blocks_are_the_same_exactly_where_text_and_media_before_their_end_are(
    first: tuple[Tokens, list[MediaSpan]], second: tuple[Tokens, list[MediaSpan]]
) -> None:
    chains = [chain_hashes(ROOT, with_media(*prompt), BLOCK) for prompt in (first, second)]
    for block, (x, y) in enumerate(zip(*chains, strict=False)):
        end = (block + 1) * BLOCK
        same_text = bool((first[0][:end] == second[0][:end]).all())
        shown = [[span for span in media if span.offset < end] for _, media in (first, second)]
        if x == y:
            assert same_text
            assert [(span.offset, span.hash) for span in shown[0] if span.offset + 4 <= end] == [
                (span.offset, span.hash) for span in shown[1] if span.offset + 4 <= end
            ]
        else:
            assert not same_text or shown[0] != shown[1]


def test_in_the_index_the_text_before_an_image_is_shared_and_what_follows_is_not() -> None:
    tokens = np.array([1, 2, 3, 4, *[PLACEHOLDER] * 8, 5, 6, 7, 8], dtype=np.int32)
    cat, dog = (with_media(tokens, [MediaSpan(4, 8, content)]) for content in (b"cat", b"dog"))
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
        with_media(np.zeros(12, dtype=np.int32), spans)
