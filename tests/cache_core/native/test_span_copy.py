"""The compiled copy, where it is shared with a second thread: every byte in its place, whoever calls and how often."""

import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cache_core.native import Rows, SpanCopy, Spans, load_span_copy

Bytes = NDArray[np.uint8]
PLACES, BLOCKS = 6, 96


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> SpanCopy:
    return load_span_copy(tmp_path_factory.mktemp("native"))


class Paged:
    """Random bytes of `BLOCKS` blocks in `PLACES` pools, and rows for them."""

    def __init__(self, size: int, seed: int, shift: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        whole = self.random.integers(0, 256, PLACES * BLOCKS * size + 64, dtype=np.uint8)
        start = -whole.ctypes.data % 32 + shift  # shift: no address is aligned for wide stores
        self.pools = whole[start : start + PLACES * BLOCKS * size].reshape(PLACES, BLOCKS, size)
        self.rows = np.zeros((BLOCKS + 5, PLACES * size + 32), dtype=np.uint8)
        pages = np.array([pool.ctypes.data for pool in self.pools], dtype=np.int64)
        self.spans = Spans(pages, np.arange(PLACES, dtype=np.int64) * size, size)
        self.blocks = self.random.permutation(BLOCKS).astype(np.int32)
        numbers = self.random.permutation(len(self.rows))[:BLOCKS].astype(np.int32)
        self.places = Rows(self.rows.ctypes.data, self.rows.strides[0], numbers)

    def expected(self) -> Bytes:
        """What the rows of the blocks hold, in the order of `blocks`."""
        return self.pools[:, self.blocks].transpose(1, 0, 2).reshape(BLOCKS, -1)

    def held(self) -> Bytes:
        return self.rows[self.places.numbers][:, : PLACES * self.spans.size]


# 4 KiB spans are shared between threads, the small ones are not; 100 bytes are no multiple of a wide store.
@pytest.mark.parametrize(("size", "shift"), [(4096, 0), (4096, 4), (3000, 0), (100, 0), (128, 0)])
def test_blocks_go_to_rows_and_come_back(copy: SpanCopy, size: int, shift: int) -> None:
    paged = Paged(size, seed=size, shift=shift)
    copy(paged.spans, paged.blocks, paged.places, True)
    np.testing.assert_array_equal(paged.held(), paged.expected())
    assert not paged.rows[:, PLACES * size :].any(), "nothing beside the blocks is written"
    assert not np.delete(paged.rows, paged.places.numbers, axis=0).any()
    wanted = paged.pools.copy()
    paged.pools[:] = 0
    copy(paged.spans, paged.blocks, paged.places, False)
    np.testing.assert_array_equal(paged.pools, wanted)


def test_callers_at_the_same_time_do_not_disturb_each_other(copy: SpanCopy) -> None:
    def work(seed: int) -> None:
        for turn in range(20):
            paged = Paged(4096, seed=100 * seed + turn)
            copy(paged.spans, paged.blocks, paged.places, True)
            right[seed] = right[seed] and bool((paged.held() == paged.expected()).all())

    right = dict.fromkeys(range(4), True)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in right]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(right.values())


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_process_copies_without_the_thread_it_did_not_get(copy: SpanCopy) -> None:
    paged = Paged(4096, seed=1)
    copy(paged.spans, paged.blocks, paged.places, True)  # the thread is there now
    child = os.fork()
    if not child:
        paged.rows[:] = 0
        copy(paged.spans, paged.blocks, paged.places, True)
        os._exit(0 if (paged.held() == paged.expected()).all() else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_numbers_that_do_not_fit_together_are_refused(copy: SpanCopy) -> None:
    paged = Paged(128, seed=1)
    with pytest.raises(ValueError, match="equally long"):
        copy(paged.spans, paged.blocks[1:], paged.places, True)
    with pytest.raises(ValueError, match="contiguous"):
        copy(paged.spans, np.repeat(paged.blocks, 2)[::2], paged.places, True)


def test_it_is_built_once(tmp_path: Path) -> None:
    load_span_copy(tmp_path)
    (built,) = tmp_path.iterdir()
    made = built.stat().st_mtime_ns
    load_span_copy(tmp_path)
    assert built.stat().st_mtime_ns == made
