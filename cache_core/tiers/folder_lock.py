"""One process a folder: a lock that ends with the process that holds it, however that ends."""

import fcntl
import os
import socket
from pathlib import Path

from cache_core.tiers.errors import FolderInUseError


class FolderLock:
    """Held from its making to `release`. The kernel lets go of it when the process is gone."""

    def __init__(self, folder: Path) -> None:
        """Take the lock.

        Raises:
            FolderInUseError: another process, or another tier in this one, has it.
            OSError: the folder cannot be written.
        """
        self._handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._handle, 200, 0).decode(errors="replace").strip()
            os.close(self._handle)
            raise FolderInUseError(folder, owner or "another process") from error
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    @classmethod
    def check(cls, folder: Path) -> None:
        """Find out whether the lock could be taken, before work that would be in vain without it; raises as it would.

        It is free afterwards, so taking it may fail still.
        """
        cls(folder).release()

    def release(self) -> None:
        """Let others have the folder. The file stays: unlinking it would let two processes in."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
