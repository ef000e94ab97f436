"""Between paged layer-first device memory and rows in main memory that each hold one whole block."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from cache_core.native import Rows, SpanCopy, Spans

_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}  # bits are copied, not numbers
# A call for each run that is shorter, in both, costs more than an index does, which goes word by word.
_SHORT_RUN = 4  # blocks
_LONG_RUN = 8 << 10  # bytes

Numbers = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Group:
    """Pools of one shape at equal distances, seen as one tensor, so that one call copies them all."""

    pool: torch.Tensor  # words [pools, heads, blocks, words of a block's head]
    offset: int  # words from a row's start to the first pool's part
    step: int  # words from one pool's part to the next one's

    def within(self, rows: torch.Tensor, base: int) -> torch.Tensor:
        """Its part of `rows` (words [n, width], the first of them word `base` of a block) in the pool's shape."""
        pools, heads, _, words = self.pool.shape
        shape = (pools, heads, rows.shape[0], words)
        strides = (self.step, words, rows.stride(0), 1)
        return rows.as_strided(shape, strides, int(rows.storage_offset()) + self.offset - base)


class BlockRows:
    """Copies blocks of `keys[layer]` and `values[layer]`, each [heads, slots, dim], from and to rows.

    On the CPU the native copy moves span after span. Without it, one call copies each run (blocks and rows
    that go up by one together), or one call all of them where runs are short. An accelerator gathers into a
    buffer of its own first, then moves whole rows.
    """

    def __init__(
        self,
        keys: Sequence[torch.Tensor],
        values: Sequence[torch.Tensor],
        block_size: int,
        span_copy: SpanCopy | None = None,
    ) -> None:
        pools = [pool for pair in zip(keys, values, strict=True) for pool in pair]
        word = _widest_word([block_size * pool.shape[2] * pool.element_size() for pool in pools])
        self._pools = [_by_block(pool, block_size, word) for pool in pools]
        sizes = [pool.shape[0] * pool.shape[2] for pool in self._pools]
        self._offsets = [0, *np.cumsum(sizes).tolist()]  # words; of keys, values, keys...
        self._word = self._pools[0].dtype
        self._device = self._pools[0].device
        self._groups: dict[range, list[_Group]] = {}
        self._span_copy = span_copy
        self._span_tables: dict[range, list[Spans]] = {}

    def span(self, layers: range) -> tuple[int, int]:
        """First byte of these layers in a row, and one past the last."""
        size = self._word.itemsize
        return self._offsets[2 * layers.start] * size, self._offsets[2 * layers.stop] * size

    def read(self, blocks: Numbers, out: torch.Tensor, rows: Numbers | None, layers: range | None) -> None:
        """See `DeviceTier.read_blocks`."""
        layers, base, words, rows = self._prepare(blocks, out, rows, layers)
        if self._device.type == "cpu":
            self._read_here(layers, blocks, words, rows)
            return
        staged = self._staging(len(blocks), base)
        index = self._index(blocks)
        for group in self._grouped(layers):
            group.within(staged, base.start).copy_(group.pool.index_select(2, index))
        for there, here in _whole_rows(rows, contiguous=len(base) == words.shape[1]):
            words[there, base.start : base.stop].copy_(staged[here], non_blocking=True)

    def write(self, blocks: Numbers, data: torch.Tensor, rows: Numbers | None, layers: range | None) -> None:
        """See `DeviceTier.write_blocks`."""
        layers, base, words, rows = self._prepare(blocks, data, rows, layers)
        if self._device.type == "cpu":
            self._write_here(layers, blocks, words, rows)
            return
        staged = self._staging(len(blocks), base)
        for there, here in _whole_rows(rows, contiguous=len(base) == words.shape[1]):
            staged[here].copy_(words[there, base.start : base.stop], non_blocking=True)
        index = self._index(blocks)
        for group in self._grouped(layers):
            group.pool.index_copy_(2, index, group.within(staged, base.start))

    def _read_here(self, layers: range, blocks: Numbers, words: torch.Tensor, rows: Numbers) -> None:
        if self._span_copy is not None:
            self._copy_spans(self._span_copy, layers, blocks, words, rows, to_rows=True)
            return
        for group in self._grouped(layers):
            _copy(group.pool, blocks, group.within(words, 0), rows)

    def _write_here(self, layers: range, blocks: Numbers, words: torch.Tensor, rows: Numbers) -> None:
        if self._span_copy is not None:
            self._copy_spans(self._span_copy, layers, blocks, words, rows, to_rows=False)
            return
        for group in self._grouped(layers):
            _copy(group.within(words, 0), rows, group.pool, blocks)

    def _copy_spans(
        self,
        copy: SpanCopy,
        layers: range,
        blocks: Numbers,
        words: torch.Tensor,
        rows: Numbers,
        to_rows: bool,
    ) -> None:
        step = words.stride(0) * words.element_size()
        places = Rows(words.data_ptr(), step, np.ascontiguousarray(rows, dtype=np.int32))
        for spans in self._spans(layers):
            copy(spans, np.ascontiguousarray(blocks, dtype=np.int32), places, to_rows)

    def _spans(self, layers: range) -> list[Spans]:
        """The parts of a block in these layers, by their size, in the order of a row."""
        found = self._span_tables.get(layers)
        if found is None:
            by_size: dict[int, list[tuple[int, int]]] = {}
            for place in range(2 * layers.start, 2 * layers.stop):
                pool, word = self._pools[place], self._word.itemsize
                size = pool.shape[2] * word
                for head in range(pool.shape[0]):
                    page = pool.data_ptr() + head * pool.stride(0) * word
                    by_size.setdefault(size, []).append((page, self._offsets[place] * word + head * size))
            tables = {size: np.ascontiguousarray(np.array(places).T) for size, places in by_size.items()}
            found = [Spans(pages, offsets, size) for size, (pages, offsets) in tables.items()]
            self._span_tables[layers] = found
        return found

    def _prepare(
        self, blocks: Numbers, data: torch.Tensor, rows: Numbers | None, layers: range | None
    ) -> tuple[range, range, torch.Tensor, Numbers]:
        """The layers to copy, their words in a row, `data` as words, and the rows."""
        layers = range(len(self._pools) // 2) if layers is None else layers
        rows = np.arange(len(blocks), dtype=np.int32) if rows is None else rows
        width = self._offsets[-1] * self._word.itemsize
        if data.dtype != torch.uint8 or data.ndim != 2 or data.shape[1] != width or data.stride(1) != 1:
            raise ValueError(f"rows are uint8 [n, {width}], got {data.dtype} {list(data.shape)}")
        if data.data_ptr() % self._word.itemsize:
            raise ValueError(f"rows begin at a multiple of {self._word.itemsize} bytes")
        if len(rows) != len(blocks):
            raise ValueError(f"{len(blocks)} blocks for {len(rows)} rows")
        for numbers, limit in ((blocks, self._pools[0].shape[1]), (rows, len(data))):
            if len(numbers) and (numbers.min() < 0 or numbers.max() >= limit):
                raise ValueError(f"a block or row is not within 0..{limit - 1}")
        words = range(self._offsets[2 * layers.start], self._offsets[2 * layers.stop])
        return layers, words, data.view(self._word), rows

    def _grouped(self, layers: range) -> list[_Group]:
        groups = self._groups.get(layers)
        if groups is None:
            groups = [group for first in (0, 1) for group in self._group(layers, first)]
            self._groups[layers] = groups
        return groups

    def _group(self, layers: range, first: int) -> Iterator[_Group]:
        """Groups of the keys (`first` 0) or values (1) of these layers: as few as their places in memory allow."""
        places = [2 * layer + first for layer in layers]
        start = 0
        while start < len(places):
            stop = start + 1
            while stop < len(places) and self._continues(places, start, stop):
                stop += 1
            yield self._join(places[start:stop])
            start = stop

    def _continues(self, places: list[int], start: int, stop: int) -> bool:
        """Whether `places[stop]` lies behind `places[start:stop]` as these lie behind each other."""
        first, second, last = places[start], places[start + 1], places[stop]
        alike = self._pools[last].shape == self._pools[first].shape
        if not alike or self._storage(last) != self._storage(first):
            return False
        step, width = self._distance(first, second), self._offsets[second] - self._offsets[first]
        times = stop - start
        return (
            step > 0
            and self._distance(first, last) == times * step
            and self._offsets[last] - self._offsets[first] == times * width
        )

    def _join(self, places: list[int]) -> _Group:
        head = self._pools[places[0]]
        distance = self._distance(places[0], places[1]) if len(places) > 1 else 0
        step = self._offsets[places[1]] - self._offsets[places[0]] if len(places) > 1 else 0
        pool = head.as_strided((len(places), *head.shape), (distance, *head.stride()), head.storage_offset())
        return _Group(pool, self._offsets[places[0]], step)

    def _storage(self, place: int) -> int:
        return self._pools[place].untyped_storage().data_ptr()

    def _distance(self, a: int, b: int) -> int:
        return int(self._pools[b].storage_offset()) - int(self._pools[a].storage_offset())

    def _staging(self, blocks: int, words: range) -> torch.Tensor:
        return torch.empty((blocks, len(words)), dtype=self._word, device=self._device)

    def _index(self, blocks: Numbers) -> torch.Tensor:
        index = torch.from_numpy(blocks.astype(np.int64))
        if self._device.type != "cuda":
            return index.to(self._device)
        # From pageable memory it would wait for all that was queued, and no piece would be queued before the last one
        # has arrived. Pinned memory is not given out again before the copy has read it.
        return index.pin_memory().to(self._device, non_blocking=True)


def _by_block(pool: torch.Tensor, block_size: int, word: torch.dtype) -> torch.Tensor:
    """[heads, slots, dim] as words [heads, blocks, words of a block's head]."""
    heads, slots, dim = pool.shape
    return pool.view(heads, slots // block_size, block_size * dim).view(word)


def _widest_word(spans: Sequence[int]) -> torch.dtype:
    """The widest integer that all spans (bytes) are made of: an index copies word by word."""
    return next(word for size, word in _WORDS.items() if all(span % size == 0 for span in spans))


def _copy(source: torch.Tensor, places: Numbers, target: torch.Tensor, numbers: Numbers) -> None:
    """`target[:, :, numbers[i]]` gets `source[:, :, places[i]]`: run by run, or by index if runs are short."""
    runs = list(_joint_runs(places, numbers))
    block_bytes = source[:, :, :1].numel() * source.element_size()
    long = len(places) * block_bytes >= len(runs) * _LONG_RUN
    if len(runs) * _SHORT_RUN > len(places) and not long:
        found = source.index_select(2, torch.from_numpy(places.astype(np.int64)))
        target.index_copy_(2, torch.from_numpy(numbers.astype(np.int64)), found)
        return
    for place, number, length in runs:
        target[:, :, number : number + length].copy_(source[:, :, place : place + length])


def _joint_runs(blocks: Numbers, rows: Numbers) -> Iterator[tuple[int, int, int]]:
    """(first block, first row, length) of every stretch where both go up by one."""
    if not len(blocks):
        return
    breaks = np.flatnonzero((np.diff(blocks) != 1) | (np.diff(rows) != 1)) + 1
    for start, stop in pairwise([0, *breaks.tolist(), len(blocks)]):
        yield int(blocks[start]), int(rows[start]), stop - start


def _whole_rows(rows: Numbers, contiguous: bool) -> Iterator[tuple[slice, slice]]:
    """(rows, places in `rows`) that one contiguous copy can move: runs of whole rows, or one part of one row.

    A strided copy between an accelerator and main memory would go through pageable memory and block.
    """
    if contiguous:
        for place, row, length in _joint_runs(np.arange(len(rows), dtype=np.int32), rows):
            yield slice(row, row + length), slice(place, place + length)
    else:
        for place, row in enumerate(rows.tolist()):
            yield slice(row, row + 1), slice(place, place + 1)
