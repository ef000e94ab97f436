"""Checksums of the host's rows, by several threads where there is much to sum."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from cache_core.block_pool import Blocks

_THREADS = 4
_LEAST_BYTES = 4 << 20  # less is done before another thread has woken up


class RowSums:
    """CRC-32C of rows. From any thread; whoever calls holds the rows.

    Args:
        rows: uint8 [rows, block bytes].
    """

    def __init__(self, rows: NDArray[np.uint8], threads: int | None = None) -> None:
        self._rows = rows
        self._threads = threads or min(_THREADS, _cores())
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="kvgate-host-sums")

    def of(self, rows: Blocks) -> list[int]:
        """The sum of each of these rows."""
        numbers = rows.tolist()
        if self._threads == 1 or len(numbers) * self._rows.shape[1] < _LEAST_BYTES:
            return self._some(numbers)
        step = -(-len(numbers) // self._threads)
        parts = [numbers[at : at + step] for at in range(0, len(numbers), step)]
        try:
            rest = [self._pool.submit(self._some, part) for part in parts[1:]]
        except RuntimeError:  # it was closed meanwhile
            return self._some(numbers)
        return [*self._some(parts[0]), *(one for part in rest for one in part.result())]

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False)

    def _some(self, numbers: Sequence[int]) -> list[int]:
        return [crc32c(self._rows[number]) for number in numbers]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
