"""A file system that hangs, fails or is full when a test says so."""

import errno
from collections.abc import Sequence
from threading import Event

from cache_core.tiers.files import Files


class FaultyFiles(Files):
    """Real files. `release` must be set before the tier is closed, or what hangs goes on hanging."""

    def __init__(self) -> None:
        self.hang_reads = False
        self.hang_writes = False
        self.fail_reads = False
        self.full = False
        self.hanging = Event()  # something hangs now
        self.release = Event()

    def read(self, handle: int, buffers: Sequence[memoryview], offset: int) -> int:
        if self.hang_reads:
            self._hang()
        if self.fail_reads:
            raise OSError(errno.EIO, "the disk is broken")
        return super().read(handle, buffers, offset)

    def write(self, handle: int, data: memoryview, offset: int) -> int:
        if self.hang_writes:
            self._hang()
        if self.full:
            raise OSError(errno.ENOSPC, "the disk is full")
        return super().write(handle, data, offset)

    def _hang(self) -> None:
        self.hanging.set()
        self.release.wait(300)
