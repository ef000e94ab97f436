"""The heap of a process that serves on pages of 2 MB, where Linux gives them to whoever asks.

A request touches small objects all over it: with pages of 4 KB the processor looks up again and again where they are,
in a virtual machine at twice the cost.
"""

import ctypes
from collections.abc import Iterable, Iterator
from pathlib import Path

_SIZE = 2 << 20  # bytes of a huge page
_MOST = 1 << 30  # bytes of one process; more is no heap of small objects, but a model's weights or buffers
_WANTED, _NOW = 14, 25  # MADV_HUGEPAGE, and MADV_COLLAPSE of Linux 6.1: older ones take their time
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MAPS = Path("/proc/self/maps")


def use_huge_pages(setting: Path = _SETTING) -> int:
    """Put what there is by now onto huge pages; how many bytes. 0 where there are none.

    `setting`: where the operator says whether Linux has any; `never` there is obeyed. Takes tenths of a second.
    """
    try:
        never = "[never]" in setting.read_text()
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return 0  # another system, or one without them
    ranges = list(heaps(lines))
    if never or sum(end - start for start, end in ranges) > _MOST:
        return 0
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    asked = 0
    for start, end in ranges:
        if madvise(start, end - start, _WANTED) == 0:
            madvise(start, end - start, _NOW)
            asked += end - start
    return asked


def heaps(maps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Whole huge pages in memory that is the process's own, and no file's. `maps`: lines of `/proc/PID/maps`."""
    for line in maps:
        place, allowed, _, _, _, *name = line.split(None, 5)
        if allowed != "rw-p" or (name and name[0].strip() != "[heap]"):
            continue
        start, end = (int(each, 16) for each in place.split("-"))
        start, end = -(-start // _SIZE) * _SIZE, end // _SIZE * _SIZE
        if start < end:
            yield start, end
