"""One append-only file of records: header, body, and zeros up to the next multiple of the alignment."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from cache_core.block_header import BadBlockError, Envelope, claimed_size, unpack
from cache_core.tiers.files import ALIGNMENT, Files, aligned, aligned_buffer, read_fully, write_fully

_ZEROS = 1 << 20  # bytes written at once where holes cannot be punched


class Handle:
    """An open file that is closed when nobody reads from it any more, however long a disk takes."""

    __slots__ = ("_file", "_files", "writable")

    def __init__(self, files: Files, file: int, writable: bool) -> None:
        self._files = files
        self._file = file
        self.writable = writable

    def __del__(self) -> None:
        os.close(self._file)

    def read(self, buffers: list[memoryview], offset: int) -> int:
        """Fill `buffers`; fewer bytes only where the file ends."""
        return read_fully(self._files, self._file, buffers, offset)

    def write(self, data: memoryview, offset: int) -> None:
        """Write all of `data`."""
        write_fully(self._files, self._file, data, offset)

    def sync(self) -> None:
        """What was written is on the disk when this returns."""
        self._files.sync(self._file)


class Segment:
    """Written by one thread at a time, under the tier's write lock; read by any through its handle.

    `opening` is called before a new handle is kept: there is a bound to them.
    """

    def __init__(
        self,
        files: Files,
        path: Path,
        number: int,
        size: int,
        used: int,
        direct: bool,
        owner: bytes | None,
        opening: Callable[["Segment"], None],
    ) -> None:
        self.path = path
        self.number = number
        self.size = size  # bytes, of whole records
        self.used = used  # order of last use
        self.owner = owner  # the identity that everything in it is of; None: of several, or nobody knows
        self.handle: Handle | None = None
        self._opening = opening
        self._files = files
        self._direct = direct

    def create(self) -> None:
        """Make the file, which must not be there yet."""
        self._open(os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def opened(self) -> Handle:
        """Its handle, opened for reading if it was not yet."""
        return self.handle or self._open(os.O_RDONLY)

    def append(self, data: memoryview) -> None:
        """Whole records, aligned. Where this fails, `size` stays what it was."""
        handle = self.handle
        if handle is None or not handle.writable:  # it was closed since, because others were opened
            handle = self._open(os.O_RDWR)
        handle.write(data, self.size)
        self.size += len(data)

    def sync(self) -> None:
        """Everything appended is on the disk when this returns."""
        self.opened().sync()

    def cut(self) -> None:
        """Let go of what a failed append, or a process that ended in one, left behind `size`."""
        if self.path.stat().st_size > self.size:
            self._files.truncate(self.path, self.size)

    def records(self) -> Iterator[tuple[int, Envelope | None]]:
        """Offset and header of every record, from headers alone. What was erased is passed over.

        A page that should begin a record, but is damaged, comes with None.
        """
        handle = self._files.open(self.path, os.O_RDONLY)
        head = aligned_buffer(ALIGNMENT)
        try:
            offset = 0
            while offset < self.size:
                count = read_fully(self._files, handle, [head], offset)
                found = self._record(handle, head[:count], offset)
                if found is not None or any(head[:count]):
                    yield offset, found
                offset += record_size(found) if found is not None else ALIGNMENT
        finally:
            os.close(handle)

    def erase(self, ranges: list[tuple[int, int]]) -> None:
        """Overwrite these (offset, length) with zeros, and give their space back where that can be done."""
        handle = self._files.open(self.path, os.O_RDWR)
        try:
            for offset, length in ranges:
                if not self._files.punch(handle, offset, length):
                    self._zero(handle, offset, length)
            self._files.sync(handle)
        finally:
            os.close(handle)

    def _record(self, handle: int, head: memoryview, offset: int) -> Envelope | None:
        try:
            return unpack(head)
        except BadBlockError:
            pass
        # the token ids of a large block do not fit into one page
        size = claimed_size(head)
        if not ALIGNMENT < size <= self.size - offset:
            return None
        larger = aligned_buffer(size)
        count = read_fully(self._files, handle, [larger], offset)
        try:
            return unpack(larger[:count])
        except BadBlockError:
            return None

    def _zero(self, handle: int, offset: int, length: int) -> None:
        for start in range(offset, offset + length, _ZEROS):
            part = memoryview(bytes(min(_ZEROS, offset + length - start)))
            write_fully(self._files, handle, part, start)

    def _open(self, flags: int) -> Handle:
        open_it = self._files.open_direct if self._direct else self._files.open
        handle = Handle(self._files, open_it(self.path, flags), bool(flags & os.O_RDWR))
        self._opening(self)
        self.handle = handle
        return handle


def record_size(found: Envelope) -> int:
    """Bytes of a whole record in a segment."""
    return aligned(found.header_bytes + found.body_bytes)
