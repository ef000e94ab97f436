"""Every sequence's keys are read exactly once, and shared ones once for all who share them."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.embedded.attention import Segment
from engine_adapters.embedded.attention.spans import MIN_SHARED_TOKENS, Span, key_spans

BLOCK = 16


def decode(blocks: list[int], past: int) -> Segment:
    return Segment(np.zeros(1, dtype=np.int32), past, np.array(blocks, dtype=np.int32), sample=True)


@st.composite
def steps(draw: st.DrawFn) -> list[Segment]:
    """Sequences as branches of a tree of blocks, each writing to blocks of its own."""
    fresh = iter(range(10_000))
    trunks: list[list[int]] = [[]]
    for _ in range(draw(st.integers(0, 4))):
        trunk = draw(st.sampled_from(trunks))
        trunks.append(trunk + [next(fresh) for _ in range(draw(st.integers(1, 20)))])
    segments = []
    for _ in range(draw(st.integers(1, 7))):
        trunk = draw(st.sampled_from(trunks))
        past = len(trunk) * BLOCK + draw(st.integers(0, 60))
        size = draw(st.sampled_from([1, 1, 1, 3, 20, 50]))
        own = -(-(past + size) // BLOCK) - len(trunk) + draw(st.integers(0, 2))
        table = np.array(trunk + [next(fresh) for _ in range(own)], dtype=np.int32)
        segments.append(Segment(np.zeros(size, dtype=np.int32), past, table, sample=True))
    return segments


@given(steps())
def test_the_spans_of_a_segment_cover_its_keys_once(segments: list[Segment]) -> None:
    spans = key_spans(segments, BLOCK)
    for i, segment in enumerate(segments):
        own = sorted((span.begin, span.end) for span in spans if i in span.members)
        assert own[0][0] == 0
        assert own[-1][1] == segment.length
        assert all(left[1] == right[0] for left, right in pairwise(own))


@given(steps())
def test_members_of_a_span_have_the_same_blocks_there_and_no_new_tokens(segments: list[Segment]) -> None:
    for span in key_spans(segments, BLOCK):
        if len(span.members) == 1:
            continue
        assert span.end - span.begin >= MIN_SHARED_TOKENS
        assert span.end <= min(segments[i].past for i in span.members)
        tables = [segments[i].blocks[span.begin // BLOCK : span.end // BLOCK] for i in span.members]
        assert all(np.array_equal(table, tables[0]) for table in tables)


def test_nested_prefixes_are_shared_at_every_level() -> None:
    system, talk = list(range(20)), list(range(20, 40))
    segments = [
        decode([*system, 100], 325),
        decode([*system, *talk, 101], 645),
        decode([*system, *talk, 102], 641),
    ]
    spans = key_spans(segments, BLOCK)
    shared = {(tuple(sorted(span.members)), span.begin, span.end) for span in spans if len(span.members) > 1}
    assert shared == {((0, 1, 2), 0, 320), ((1, 2), 320, 640)}


def test_a_short_common_prefix_is_read_by_each() -> None:
    few = list(range(MIN_SHARED_TOKENS // BLOCK - 1))
    segments = [decode([*few, 100], len(few) * BLOCK + 3), decode([*few, 101], len(few) * BLOCK + 9)]
    spans = key_spans(segments, BLOCK)
    assert sorted(spans, key=lambda span: span.members) == [
        Span((0,), 0, segments[0].length),
        Span((1,), 0, segments[1].length),
    ]
