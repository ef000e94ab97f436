"""The file system as the tiers use it. A thin layer, so that a test can put a failing disk in its place."""

import ctypes
import errno
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from cache_core.drop_reason import DropReason
from cache_core.memory import ALIGNMENT as HUGE_PAGE
from cache_core.memory import anonymous_memory

ALIGNMENT = 4096  # of offsets, lengths and memory under direct I/O, on every disk there is
_MEMORY_ALIGNMENT = 512
_DIRECT: int = getattr(os, "O_DIRECT", 0)
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01  # linux/falloc.h
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


class Files:
    """Raises OSError as the system does. Files are made for their owner alone."""

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def open_direct(self, path: Path, flags: int) -> int:
        """Like `open`, past the page cache: everything must be aligned then."""
        return self.open(path, flags | _DIRECT)

    def read(self, handle: int, buffers: Sequence[memoryview], offset: int) -> int:
        return os.preadv(handle, buffers, offset)

    def write(self, handle: int, data: memoryview, offset: int) -> int:
        return os.pwrite(handle, data, offset)

    def sync(self, handle: int) -> None:
        os.fdatasync(handle)

    def truncate(self, path: Path, size: int) -> None:
        os.truncate(path, size)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def punch(self, handle: int, offset: int, length: int) -> bool:
        """Give the disk space of a range back, which reads as zeros then; False where that cannot be done."""
        return _fallocate(handle, _PUNCH_HOLE_KEEP_SIZE, offset, length)


def read_fully(files: Files, handle: int, buffers: Sequence[memoryview], offset: int) -> int:
    """Fill all buffers from `offset` on; fewer bytes only where the file ends."""
    done, rest = 0, list(buffers)
    while rest:
        count = files.read(handle, rest, offset + done)
        if count == 0:
            break
        done += count
        while rest and count >= len(rest[0]):
            count -= len(rest.pop(0))
        if rest and count:
            rest[0] = rest[0][count:]
    return done


def write_fully(files: Files, handle: int, data: memoryview, offset: int) -> None:
    """Write all of `data`, of which a disk that is nearly full may take a part.

    Raises:
        OSError: ENOSPC where it takes nothing more, or what the system said.
    """
    done, whole = 0, len(data) % ALIGNMENT == 0
    while done < len(data):
        count = files.write(handle, data[done:], offset + done)
        # direct I/O goes on at whole pages only
        count -= count % ALIGNMENT if whole else 0
        if count == 0:
            raise OSError(errno.ENOSPC, "only a part was written")
        done += count


def aligned(size: int) -> int:
    """`size` rounded up to what direct I/O wants."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def aligned_buffer(size: int) -> memoryview:
    """Zeroed memory that direct I/O can use, at least `size` bytes.

    Large ones lie in huge pages, of which the system pins few and hands the disk long pieces: reads of 2 MiB took half
    the time.
    """
    size = max(aligned(size), ALIGNMENT)
    if size >= HUGE_PAGE:
        return memoryview(anonymous_memory(size).data)
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def is_aligned(buffer: memoryview) -> bool:
    """Whether direct I/O can read into this memory as it is."""
    if len(buffer) % ALIGNMENT or buffer.readonly:
        return False
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer)) % _MEMORY_ALIGNMENT == 0


def supports_direct(files: Files, folder: Path) -> bool:
    """Whether files in `folder` can be read and written past the page cache."""
    if not _DIRECT:
        return False
    probe = folder / f"probe-{os.getpid()}"
    try:
        handle = files.open_direct(probe, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            page = aligned_buffer(ALIGNMENT)
            return files.write(handle, page, 0) == len(page) and files.read(handle, [page], 0) == len(page)
        finally:
            os.close(handle)
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)


def probe_folder(files: Files, folder: Path, name: str, direct: bool = False) -> None:
    """Write a page to a file of that name, sync it, read it and remove it; `direct`: past the page cache.

    Raises:
        OSError: what the system said.
    """
    path = folder / name
    open_file = files.open_direct if direct else files.open
    handle = open_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        page = aligned_buffer(ALIGNMENT)
        write_fully(files, handle, page, 0)
        files.sync(handle)
        if read_fully(files, handle, [page], 0) != len(page):
            raise OSError(errno.EIO, "what was written is not there")
    finally:
        os.close(handle)
        files.unlink(path)


def make_private(folder: Path) -> None:
    """A folder that its owner alone can enter, made or tightened."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o777 != 0o700:
        folder.chmod(0o700)


def sync_folder(folder: Path) -> None:
    """Names made, renamed or removed in `folder` stay so after a crash."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def reason_of(error: OSError) -> DropReason:
    """Which kind of drop a failure of the file system is."""
    if error.errno == errno.ENOENT:
        return DropReason.MISSING
    if error.errno in _FULL:
        return DropReason.DISK_FULL
    return DropReason.PERMISSION if error.errno in _FORBIDDEN else DropReason.IO_ERROR


def _fallocate(handle: int, mode: int, offset: int, length: int) -> bool:
    try:
        call = ctypes.CDLL(None, use_errno=True).fallocate
    except (AttributeError, OSError):
        return False
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return int(call(handle, mode, offset, length)) == 0
