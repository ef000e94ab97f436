"""Cuts the spans of short segments into the kernels' programs, and says where each part's result goes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine_adapters.embedded.attention.spans import Span
from engine_adapters.embedded.attention.step import StepLayout

KEY_TILE = 64  # keys; ranges are cut at multiples of it

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows that look at keys [begin, end) by the page table that starts at `table`."""

    rows: NDArray[np.int64]
    table: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Work:
    """Arrays the kernels read as they are."""

    items: Ints  # [programs, 5]: table, begin, end, first entry, entries
    entries: Ints  # [entries, 3]: row, position, part
    merges: Ints  # [rows, 3]: row, first part, parts


def page_tables(layout: StepLayout, spans: Sequence[Span]) -> tuple[Ints, dict[int, int]]:
    """The tables these spans are found by, in a row, and where each segment's begins."""
    owners = sorted({span.members[0] for span in spans})
    tables = [layout.segments[i].blocks for i in owners]
    ends = np.cumsum([len(table) for table in tables])
    begins = (int(end) - len(table) for end, table in zip(ends, tables, strict=True))
    return np.concatenate(tables).astype(np.int32, copy=False), dict(zip(owners, begins, strict=True))


def key_ranges(
    layout: StepLayout, spans: Sequence[Span], offsets: dict[int, int], window: int | None
) -> list[KeyRange]:
    """What each span's rows look at; keys that none of them sees any more are left out."""
    ranges = []
    for span in spans:
        rows = np.concatenate([np.arange(r.start, r.stop) for r in map(layout.rows, span.members)])
        begin = span.begin
        if window is not None:
            begin = max(begin, int(layout.positions[rows].min()) - window + 1)
        if begin < span.end:
            ranges.append(KeyRange(rows, offsets[span.members[0]], begin, span.end))
    return ranges


def cut(
    ranges: Sequence[KeyRange], positions: NDArray[np.int64], rows_a_tile: int, programs: int, min_keys: int
) -> Work:
    """About `programs` items of at most `rows_a_tile` rows each; one has at least `min_keys` keys, if there are.

    Several programs over one row's keys are what keeps a whole GPU busy while few sequences decode.
    """
    tiles = [tile for each in ranges for tile in _by_rows(each, rows_a_tile)]
    at_most = max(min_keys, -(-sum(tile.end - tile.begin for tile in tiles) // programs))
    pieces = [piece for tile in tiles for piece in _by_keys(tile, at_most)]
    rows = np.concatenate([piece.rows for piece in pieces])
    order = np.argsort(rows, kind="stable")
    part = np.empty(len(rows), dtype=np.int64)
    part[order] = np.arange(len(rows))  # the parts of one row lie side by side
    whole, counts = np.unique(rows, return_counts=True)
    sizes = np.array([len(piece.rows) for piece in pieces])
    places = np.array([(piece.table, piece.begin, piece.end) for piece in pieces])
    return Work(
        items=_ints(*places.T, np.cumsum(sizes) - sizes, sizes),
        entries=_ints(rows, positions[rows], part),
        merges=_ints(whole, np.cumsum(counts) - counts, counts),
    )


def _by_rows(whole: KeyRange, size: int) -> Iterator[KeyRange]:
    for at in range(0, len(whole.rows), size):
        yield KeyRange(whole.rows[at : at + size], whole.table, whole.begin, whole.end)


def _by_keys(tile: KeyRange, at_most: int) -> Iterator[KeyRange]:
    length = tile.end - tile.begin
    even = -(-length // -(-length // at_most))
    step = -(-even // KEY_TILE) * KEY_TILE
    for begin in range(tile.begin, tile.end, step):
        yield KeyRange(tile.rows, tile.table, begin, min(begin + step, tile.end))


def _ints(*columns: NDArray[np.int64]) -> Ints:
    return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.int32))
