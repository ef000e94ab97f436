"""Every row's keys are given out exactly once, and its parts lie where the merge looks for them."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapters.embedded.attention.segment import Segment
from engine_adapters.embedded.attention.step import StepLayout, lay_out
from engine_adapters.embedded.attention.triton_work import cut, key_ranges, page_tables

BLOCK = 16


@st.composite
def layouts(draw: st.DrawFn) -> StepLayout:
    """Sequences of up to 600 tokens, some of which begin with the same blocks."""
    shared = np.arange(draw(st.integers(0, 20)), dtype=np.int32)
    free, segments = 1000, []
    for _ in range(draw(st.integers(1, 6))):
        past, new = draw(st.integers(0, 560)), draw(st.integers(1, 32))
        own = np.arange(free, free + 60, dtype=np.int32)
        free += 60
        begin = shared[: past // BLOCK] if draw(st.booleans()) else shared[:0]
        segments.append(Segment(np.zeros(new, dtype=np.int32), past, np.concatenate([begin, own]), True))
    return lay_out(segments, BLOCK)


@settings(deadline=None)
@given(layouts(), st.none() | st.integers(1, 700), st.integers(1, 21), st.integers(1, 200))
def test_each_row_sees_each_of_its_keys_once(
    layout: StepLayout, window: int | None, rows_a_tile: int, programs: int
) -> None:
    tables, offsets = page_tables(layout, layout.spans)
    ranges = key_ranges(layout, layout.spans, offsets, window)
    work = cut(ranges, layout.positions, rows_a_tile, programs, min_keys=64)
    seen = {row: Counter[int]() for row in range(layout.size)}
    parts = {row: [] for row in range(layout.size)}
    for table, begin, end, first, count in work.items.tolist():
        assert count <= rows_a_tile
        for row, position, part in work.entries[first : first + count].tolist():
            assert position == layout.positions[row]
            at = np.arange(max(begin, 0 if window is None else position - window + 1), min(end, position + 1))
            seen[row].update((tables[table + at // BLOCK].astype(int) * BLOCK + at % BLOCK).tolist())
            parts[row].append(part)
    for i, segment in enumerate(layout.segments):
        for row in layout.rows(i):
            at = np.arange(segment.length)
            at = at[at <= layout.positions[row]]
            if window is not None:
                at = at[at > layout.positions[row] - window]
            slots = segment.blocks[at // BLOCK].astype(int) * BLOCK + at % BLOCK
            assert seen[row] == Counter(slots.tolist())
    found = {row: sorted(range(first, first + count)) for row, first, count in work.merges.tolist()}
    assert found == {row: sorted(each) for row, each in parts.items()}
    assert sorted(part for each in parts.values() for part in each) == list(range(len(work.entries)))
