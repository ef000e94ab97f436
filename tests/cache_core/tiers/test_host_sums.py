"""Sums of rows are those of their bytes, by however many threads."""

import threading

import numpy as np
import pytest
from crc32c import crc32c

from cache_core.tiers import host_sums
from cache_core.tiers.host_sums import RowSums


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_every_row_gets_its_own_sum_in_the_order_asked(
    threads: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_sums, "_LEAST_BYTES", 1)
    rows = np.random.default_rng(1).integers(0, 256, (9, 300), dtype=np.uint8)
    wanted = np.array([8, 0, 3, 3, 1, 7, 2][:count], dtype=np.int32)
    sums = RowSums(rows, threads)
    assert sums.of(wanted) == [crc32c(rows[row].tobytes()) for row in wanted.tolist()]
    sums.close()
    assert sums.of(wanted) == [crc32c(rows[row].tobytes()) for row in wanted.tolist()], "though it is closed"


def test_few_bytes_are_summed_on_the_callers_thread() -> None:
    rows = np.ones((9, 300), dtype=np.uint8)
    sums = RowSums(rows, 4)
    before = set(threading.enumerate())  # some of which may end meanwhile
    sums.of(np.arange(9, dtype=np.int32))
    assert set(threading.enumerate()) <= before
    sums.close()
