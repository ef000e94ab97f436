"""Rows are put side by side by their groups, however many groups there are."""

import numpy as np
import pytest

from gateway.reports.audit.percentiles import percentiles
from gateway.reports.rows.grouped import grouped


@pytest.mark.parametrize("count", [1, 3, 32_767, 32_768, 32_769, 70_000])
def test_groups_are_side_by_side_and_rows_stay_in_their_order(count: int) -> None:
    groups = np.random.default_rng(count).integers(0, count, 5_000)
    groups[:2] = count - 1
    order, ends = grouped(groups, count)
    assert order.tolist() == sorted(range(len(groups)), key=lambda row: groups[row])
    assert ends.tolist() == np.searchsorted(np.sort(groups), np.arange(count), side="right").tolist()


def test_without_rows_every_group_is_empty() -> None:
    order, ends = grouped(np.zeros(0, np.int64), 3)
    assert order.tolist() == []
    assert ends.tolist() == [0, 0, 0]


def test_percentiles_leave_out_what_is_not_known_and_who_knows_nothing() -> None:
    cells = np.array([2, 0, 2, 3, 2])
    one = np.array([3, np.nan, 1, 5, np.nan], np.float32)
    other = np.array([np.nan, 2, np.nan, np.nan, np.nan], np.float32)
    first, second = percentiles(cells, 4, one, other)
    assert {cell: (its.count, its.p50, its.p90) for cell, its in first.items()} == {
        2: (2, 1, 3),
        3: (1, 5, 5),
    }
    assert {cell: (its.count, its.p99) for cell, its in second.items()} == {0: (1, 2)}
