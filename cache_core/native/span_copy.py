"""Loads the copy of blocks between paged memory, where they lie in many parts, and rows."""

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cache_core.native.library import load_library

Addresses = NDArray[np.int64]
Numbers = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Spans:
    """Where the parts of a block that lie together are, all of one size. Contiguous arrays [places]."""

    pages: Addresses  # of block 0 in paged memory; block n has its part n times `size` behind it
    offsets: Addresses  # bytes from the start of a row
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that hold a block each."""

    address: int  # of row 0
    step: int  # bytes from one row to the next
    numbers: Numbers  # [blocks]: which row is whose


# (spans, blocks, rows, to the rows or from them). Nothing is checked: all that is pointed to stays alive.
SpanCopy = Callable[[Spans, Numbers, Rows, bool], None]


def load_span_copy(folder: Path) -> SpanCopy:
    """The function, from `folder` or built into it. Any number of processes may do this at once.

    Raises:
        NativeBuildError: no compiler, or it failed.
        OSError: the folder cannot be written, or the library not loaded.
    """
    copy = load_library("span_copy", folder).kvgate_copy_spans
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    copy.argtypes = [
        pointer,
        pointer,
        number,
        number,
        pointer,
        number,
        pointer,
        pointer,
        number,
        *[ctypes.c_int] * 2,
    ]
    copy.restype = None
    threads = min(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)

    def copy_spans(spans: Spans, blocks: Numbers, rows: Rows, to_rows: bool) -> None:
        numbers = rows.numbers
        if blocks.shape != numbers.shape or not (blocks.flags.c_contiguous and numbers.flags.c_contiguous):
            raise ValueError("blocks and rows are two contiguous arrays of numbers, equally long")
        copy(
            *(spans.pages.ctypes.data, spans.offsets.ctypes.data, spans.pages.size, spans.size),
            *(rows.address, rows.step, blocks.ctypes.data, numbers.ctypes.data, blocks.size),
            *(to_rows, threads),
        )

    return copy_spans
