"""Memory as direct I/O wants it."""

import os

import numpy as np
import pytest

from cache_core.tiers.files import ALIGNMENT, HUGE_PAGE, aligned_buffer, is_aligned


def address(buffer: memoryview) -> int:
    return int(np.frombuffer(buffer, dtype=np.uint8).ctypes.data)


@pytest.mark.parametrize(
    "size", [0, 1, ALIGNMENT, ALIGNMENT + 1, HUGE_PAGE - 1, HUGE_PAGE, 3 * HUGE_PAGE + 5]
)
def test_buffers_are_zeroed_writable_and_aligned(size: int) -> None:
    buffer = aligned_buffer(size)
    assert size <= len(buffer) < size + ALIGNMENT + (size == 0)
    assert is_aligned(buffer)
    assert not any(buffer)
    buffer[-1] = 7
    assert buffer[-1] == 7


@pytest.mark.parametrize("size", [HUGE_PAGE, 8 << 20])
def test_large_buffers_begin_with_a_huge_page(size: int) -> None:
    held = [aligned_buffer(size) for _ in range(4)]
    assert [address(buffer) % HUGE_PAGE for buffer in held] == [0] * 4


@pytest.mark.parametrize("size", [ALIGNMENT, HUGE_PAGE])
def test_what_a_child_writes_stays_with_it(size: int) -> None:
    buffer = aligned_buffer(size)
    child = os.fork()
    if not child:
        buffer[0] = 9
        os._exit(0)
    os.waitpid(child, 0)
    assert buffer[0] == 0
