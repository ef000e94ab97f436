"""Which keys are read once for which sequences.

Sequences whose page tables begin with the same blocks see the same keys there, so those are read once for all
of them (cascade attention). Sharing nests: a system prompt shared by all, a conversation by two of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine_adapters.embedded.attention.segment import Segment

MIN_SHARED_TOKENS = 128  # below, a second pass and a merge cost more than reading the keys twice
MAX_SHARING_TOKENS = 32  # a longer prefill keeps the processor busy by itself


@dataclass(frozen=True, slots=True)
class Span:
    """Keys at positions [begin, end) of the members' sequences, found by the first member's page table."""

    members: tuple[int, ...]  # indices into the step's segments
    begin: int
    end: int


def key_spans(segments: Sequence[Segment], block_size: int) -> list[Span]:
    """Cut every segment's keys into spans, shared ones first; those of one segment cover [0, past + n) once.

    Every key of a shared span is in the past of all its members.
    """
    short = [i for i, segment in enumerate(segments) if segment.size <= MAX_SHARING_TOKENS]
    long = [i for i, segment in enumerate(segments) if segment.size > MAX_SHARING_TOKENS]
    spans = [Span((i,), 0, segments[i].length) for i in long]
    for group in _split(segments, short, 0, block_size):
        spans.extend(_spans_of_group(segments, group, block_size))
    return sorted(spans, key=lambda span: -len(span.members))


def _spans_of_group(segments: Sequence[Segment], members: list[int], block_size: int) -> Iterator[Span]:
    """Walk the tree of common page-table prefixes; `begin` is the first block not covered yet."""
    pending = [(members, 0)]
    while pending:
        group, begin = pending.pop()
        if len(group) == 1:
            yield Span((group[0],), begin * block_size, segments[group[0]].length)
            continue
        end = begin + _common_blocks(segments, group, begin, block_size)
        if (end - begin) * block_size >= MIN_SHARED_TOKENS:
            yield Span(tuple(group), begin * block_size, end * block_size)
            begin = end
        # Where less was shared, the parts begin where the group began.
        pending.extend((part, begin) for part in _split(segments, group, end, block_size))


def _common_blocks(segments: Sequence[Segment], group: Sequence[int], begin: int, block_size: int) -> int:
    """Equal table entries from `begin` on that hold only past tokens of every member."""
    limit = min(segments[i].past // block_size for i in group)
    if limit <= begin:
        return 0
    tables = np.stack([segments[i].blocks[begin:limit] for i in group])
    different = np.flatnonzero((tables != tables[0]).any(axis=0))
    return int(different[0]) if different.size else limit - begin


def _split(segments: Sequence[Segment], group: Sequence[int], at: int, block_size: int) -> list[list[int]]:
    """Split by the block at table entry `at`; a member whose past does not fill that block stands alone."""
    alone = [[i] for i in group if segments[i].past // block_size <= at]
    parts: dict[int, list[int]] = {}
    for i in group:
        if segments[i].past // block_size > at:
            parts.setdefault(int(segments[i].blocks[at]), []).append(i)
    return [*parts.values(), *alone]
