"""Percentiles of many groups at once, exact: of the values themselves, and not of averages."""

from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import numpy as np
from numpy.typing import NDArray

from gateway.reports.rows.grouped import grouped


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Nearest rank: the smallest value that so many percent do not exceed. Seconds."""

    count: int
    p50: float
    p90: float
    p99: float


def percentiles(
    cells: NDArray[np.int64], count: int, *columns: NDArray[np.float32]
) -> list[dict[int, Percentiles]]:
    """Of each column by cell; NaN values are left out, and so are cells without any.

    `cells`: the cell of each row, under `count`, shape [rows], as each column has it.
    """
    order, ends = grouped(cells, count)
    found: list[dict[int, Percentiles]] = []
    for values in columns:
        ordered = values[order]
        parts = {
            cell: ordered[start:end] for cell, (start, end) in enumerate(pairwise([0, *ends])) if end > start
        }
        known = {cell: part[~np.isnan(part)] for cell, part in parts.items()}
        found.append({cell: _of(np.sort(part)) for cell, part in known.items() if len(part)})
    return found


def _of(ordered: NDArray[np.float32]) -> Percentiles:
    p50, p90, p99 = (float(ordered[max(0, ceil(len(ordered) * share / 100) - 1)]) for share in (50, 90, 99))
    return Percentiles(len(ordered), p50, p90, p99)
