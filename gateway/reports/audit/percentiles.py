"""Percentiles of many groups at once, exact: of the values themselves, and not of averages."""

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Nearest rank: the smallest value that so many percent do not exceed. Seconds."""

    count: int
    p50: float
    p90: float
    p99: float


def percentiles(cells: NDArray[np.int64], values: NDArray[np.float32]) -> dict[int, Percentiles]:
    """By cell; NaN values are left out, and so are cells without any."""
    known = ~np.isnan(values)
    cells, values = cells[known], values[known]
    if not len(cells):
        return {}
    order = np.argsort(
        cells.astype(np.int16) if cells.max() < 1 << 15 else cells, kind="stable"
    )  # linear for 16 bits
    cells, values = cells[order], values[order]
    found, starts = np.unique(cells, return_index=True)
    ends = np.append(starts[1:], len(cells))
    return {
        int(cell): _of(np.sort(values[start:end]))
        for cell, start, end in zip(found, starts, ends, strict=True)
    }


def _of(ordered: NDArray[np.float32]) -> Percentiles:
    p50, p90, p99 = (float(ordered[max(0, ceil(len(ordered) * share / 100) - 1)]) for share in (50, 90, 99))
    return Percentiles(len(ordered), p50, p90, p99)
