"""A file system that hangs, fails or is full when a test says so."""

import errno
import time
from collections.abc import Sequence
from threading import Event, Lock

from cache_core.tiers.files import Files


class FaultyFiles(Files):
    """Real files. `release` must be set before the tier is closed, or what hangs goes on hanging."""

    def __init__(self) -> None:
        self.hang_reads = False
        self.hang_next_reads = 0  # so many, and no more
        self.hang_writes = False
        self.fail_reads = False
        self.full = False
        self.reads = 0
        self.writes = 0
        self.hung = 0  # calls that hang now
        self._lock = Lock()  # guards the counts
        self.hanging = Event()  # something hangs now
        self.release = Event()
        self._writes_released = Event()

    def read(self, handle: int, buffers: Sequence[memoryview], offset: int) -> int:
        self.reads += 1
        if self.hang_reads or self._is_to_hang():
            self._hang()
        if self.fail_reads:
            raise OSError(errno.EIO, "the disk is broken")
        return super().read(handle, buffers, offset)

    def write(self, handle: int, data: memoryview, offset: int) -> int:
        self.writes += 1
        if self.hang_writes:
            self._hang(self._writes_released)
        if self.full:
            raise OSError(errno.ENOSPC, "the disk is full")
        return super().write(handle, data, offset)

    def _is_to_hang(self) -> bool:
        with self._lock:
            wanted = self.hang_next_reads > 0
            self.hang_next_reads -= wanted
            return wanted

    def let_go_of_writes(self) -> None:
        """Those that hang go on, and no more hang; reads do still."""
        self.hang_writes = False
        self._writes_released.set()

    def _hang(self, released: Event | None = None) -> None:
        with self._lock:
            self.hung += 1
        self.hanging.set()
        ends = time.monotonic() + 300
        while not self.release.wait(0.005) and time.monotonic() < ends:
            if released is not None and released.is_set():
                break
        with self._lock:
            self.hung -= 1
