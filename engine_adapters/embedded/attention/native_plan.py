"""Cuts a step's spans into tasks for the native kernel."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine_adapters.embedded.attention.spans import Span
from engine_adapters.embedded.attention.step import StepLayout

_TOKENS = 64  # query tokens a task; more share a tile of keys, fewer balance better
_TILE = 64  # keys; ranges are cut at multiples of the kernel's tile
_MIN_KEYS = 256  # a shorter range is not worth a merge
_TASKS_A_THREAD = 6

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class NativePlan:
    """Arrays the kernel reads as they are; see Item, Row and Merge in attention.cpp."""

    slots: NDArray[np.int64]  # [T]
    tables: Ints  # all page tables, one behind another
    items: Ints  # [items, 5]: table, begin, end, first row, rows
    rows: Ints  # [rows, 4]: token, low, high, partial
    merges: Ints  # [merges, 3]: token, first partial, count
    partials: int


@dataclass(frozen=True, slots=True)
class _Task:
    table: int
    begin: int
    end: int
    tokens: NDArray[np.int64]

    @property
    def cost(self) -> int:
        return (self.end - self.begin) * len(self.tokens)


def plan_tasks(layout: StepLayout, window: int | None, kv_heads: int, threads: int) -> NativePlan:
    """Tasks for every key head, of about equal work, longest first."""
    tables, offsets = _tables(layout)
    low, high = _sight(layout, window)
    whole = [
        task
        for span in layout.spans
        for task in _by_tokens(layout, span, int(offsets[span.members[0]]), low, high)
    ]
    at_most = sum(task.cost for task in whole) * kv_heads // (threads * _TASKS_A_THREAD)
    tasks = whole if threads == 1 else [part for task in whole for part in _by_keys(task, at_most)]
    tasks.sort(key=lambda task: -task.cost)
    return _arrays(layout, tables, tasks, low, high)


def _tables(layout: StepLayout) -> tuple[Ints, NDArray[np.int64]]:
    tables = [segment.blocks for segment in layout.segments]
    sizes = np.array([len(table) for table in tables])
    return np.concatenate(tables).astype(np.int32, copy=False), np.cumsum(sizes) - sizes


def _sight(layout: StepLayout, window: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First key position each token sees, and the one behind the last."""
    low = np.zeros_like(layout.positions)
    if window is not None:
        low = np.maximum(layout.positions - window + 1, 0)
    return low, layout.positions + 1


def _by_tokens(
    layout: StepLayout, span: Span, table: int, low: NDArray[np.int64], high: NDArray[np.int64]
) -> list[_Task]:
    tokens = np.concatenate([np.arange(r.start, r.stop) for r in map(layout.rows, span.members)])
    tasks = []
    for at in range(0, len(tokens), _TOKENS):
        part = tokens[at : at + _TOKENS]
        begin = max(span.begin, int(low[part].min()))
        end = min(span.end, int(high[part].max()))
        if begin < end:
            tasks.append(_Task(table, begin, end, part))
    return tasks


def _by_keys(task: _Task, cost: int) -> list[_Task]:
    keys = max(_MIN_KEYS, -(-cost // (len(task.tokens) * _TILE)) * _TILE)
    if task.end - task.begin < 2 * keys:
        return [task]
    return [
        _Task(task.table, begin, min(begin + keys, task.end), task.tokens)
        for begin in range(task.begin, task.end, keys)
    ]


def _arrays(
    layout: StepLayout, tables: Ints, tasks: list[_Task], low: NDArray[np.int64], high: NDArray[np.int64]
) -> NativePlan:
    tokens = np.concatenate([task.tokens for task in tasks])
    counts = np.bincount(tokens, minlength=layout.size)
    order = np.argsort(tokens, kind="stable")
    shared = order[counts[tokens[order]] > 1]  # rows of tokens with several tasks, token by token
    partial = np.full(len(tokens), -1)
    partial[shared] = np.arange(len(shared))
    merged = np.flatnonzero(counts > 1)
    first = np.cumsum(counts[merged]) - counts[merged]
    sizes = np.array([len(task.tokens) for task in tasks])
    items = np.array([(task.table, task.begin, task.end) for task in tasks])
    return NativePlan(
        slots=layout.slots,
        tables=tables,
        items=_ints(*items.T, np.cumsum(sizes) - sizes, sizes),
        rows=_ints(tokens, low[tokens], high[tokens], partial),
        merges=_ints(merged, first, counts[merged]),
        partials=len(shared),
    )


def _ints(*columns: NDArray[np.int64]) -> Ints:
    return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.int32))
