"""Rows of one group side by side."""

import numpy as np
from numpy.typing import NDArray

_LINEAR = 1 << 15  # groups under this sort in linear time, as 16 bits


def grouped(groups: NDArray[np.integer], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """An order of rows, group after group and within each as they were, and the end of each group in it.

    `groups`: the group of each row, under `count`, shape [rows]. Shapes: [rows], [count].
    """
    order = np.argsort(groups.astype(np.int16) if count <= _LINEAR else groups, kind="stable")
    return order, np.cumsum(np.bincount(groups, minlength=count))
