"""Cuts stay where they are when a text grows, and come back when it loses its beginning."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canon.tokens.seams.candidates import SEAMS
from canon.tokens.seams.chunks import Chunker, ChunkSizes

SIZES = ChunkSizes(whole=40, least=20, most=60)
WORDS = st.sampled_from(("one", "two", "three", "中文", " ", " ", "\n", ", ", "7", "，"))


@settings(deadline=None)
@given(text=st.lists(WORDS, max_size=200).map("".join), more=st.lists(WORDS, max_size=50).map("".join))
def test_a_text_that_grows_keeps_all_its_cuts(text: str, more: str) -> None:
    chunker = Chunker(SEAMS, SIZES)
    before, after = chunker.cuts(text), chunker.cuts(text + more)
    # A seam at the very end may only show with what comes next.
    assert after[: len(before)] == before


def _prose(size: int) -> str:
    rng = random.Random(4)
    return " ".join(rng.choices(("apple", "pear", "plum", "quince", "cherry"), k=size))


def test_chunks_are_neither_short_nor_long() -> None:
    text = _prose(5_000)
    cuts = [0, *Chunker(SEAMS, SIZES).cuts(text)]
    lengths = [b - a for a, b in pairwise(cuts)]
    assert len(lengths) > 300
    assert min(lengths) >= 20
    assert max(lengths) <= 60 + len("quince ")


@pytest.mark.parametrize("lost", [1, 17, 150])
def test_a_text_that_loses_its_beginning_has_most_cuts_again(lost: int) -> None:
    text = _prose(5_000)
    chunker = Chunker(SEAMS, SIZES)
    before, after = set(chunker.cuts(text)), {cut + lost for cut in chunker.cuts(text[lost:])}
    assert len(before & after) > len(before) / 2


def test_short_texts_and_texts_without_seams_stay_whole() -> None:
    assert Chunker(SEAMS, SIZES).cuts("one two three") == []
    assert Chunker(SEAMS, SIZES).cuts("Q29udGVudA==" * 100) == []
    assert Chunker((), SIZES).cuts(_prose(1_000)) == []
