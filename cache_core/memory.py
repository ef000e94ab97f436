"""Large anonymous memory: aligned to huge pages, and taken from the machine only when it is first written."""

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 2 << 20  # bytes; the start of a huge page


def anonymous_memory(size: int) -> NDArray[np.uint8]:
    """uint8 [size], zeros, starting at a huge page. Lives as long as a view of it does.

    Raises:
        OSError: the machine refuses that much.
    """
    memory = mmap.mmap(-1, size + ALIGNMENT, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _prefer_huge_pages(memory)
    whole = np.frombuffer(memory, dtype=np.uint8)
    offset = -whole.ctypes.data % ALIGNMENT
    return whole[offset : offset + size]


def aligned(size: int) -> int:
    """`size` rounded up to whole huge pages."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _prefer_huge_pages(memory: mmap.mmap) -> None:
    """Huge pages keep the TLB from missing once a block, which is what scattered blocks would cost otherwise."""
    advice: Any = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None:
        return
    try:
        memory.madvise(advice)
    except OSError:
        return  # a kernel without them: ordinary pages work as well
