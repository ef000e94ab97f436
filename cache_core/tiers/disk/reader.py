"""Parallel reads of records, straight into the caller's buffers where those allow it."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from typing import NamedTuple

from cache_core.block_header import BadBlockError, BlockHeader, Coding, header_size, unpack, verify
from cache_core.drop_reason import DropReason
from cache_core.tiers.codec import Codec
from cache_core.tiers.disk.index import Place
from cache_core.tiers.disk.segment import Handle
from cache_core.tiers.files import ALIGNMENT, aligned, aligned_buffer, is_aligned, reason_of
from cache_core.tiers.io_threads import IoThreads
from cache_core.tokens import TOKEN_BYTES

_RECORDS_AT_ONCE = 256  # two buffers a record, and the system takes 1,024
_CHECKING = 2  # threads that check what was read to where it belongs, while the readers go on reading


class Wanted(NamedTuple):
    """One block to read."""

    row: int  # in the caller's arrays
    header: BlockHeader
    out: memoryview
    place: Place
    handle: Handle


class _Call:
    """What the reads of one `get` share. Nothing is copied out once it is over."""

    def __init__(self, in_place: bool) -> None:
        self.in_place = in_place
        self.over = False
        self.lock = threading.Lock()
        self.results: dict[int, DropReason | None] = {}  # by row; None: served


class _Read(NamedTuple):
    """One record as it was read."""

    item: Wanted
    part: memoryview  # its header, and its body where that is not in place
    body: memoryview | None  # where it is


class Reader:
    """Reads records with `depth` threads, and checks them."""

    def __init__(self, codec: Codec, read_bytes: int, depth: int) -> None:
        self._codec = codec
        self._read_bytes = read_bytes
        self._pool = IoThreads(depth, "kvgate-disk")
        self._checks = IoThreads(min(_CHECKING, depth), "kvgate-disk-check")
        self._local = threading.local()

    def read(self, wanted: Sequence[Wanted], timeout: float | None) -> dict[int, DropReason | None]:
        """Read everything; by row, why it was not served, or None where it was."""
        call = _Call(in_place=timeout is None)
        runs = list(_runs(wanted, self._read_bytes))
        if timeout is None and len(runs) == 1:
            self._check(call, self._read_run(call, runs[0]))
            return call.results
        # a thread left alone with a hanging disk must not find the next call's buffers behind it
        futures = [self._pool.submit(self._read_and_check, call, run) for run in runs]
        done, late = wait(futures, timeout)
        checks = [check for future in done if (check := future.result()) is not None]
        for check in checks:
            check.result()
        with call.lock:
            call.over = True
        for future in late:
            future.cancel()
        return {item.row: call.results.get(item.row, DropReason.SLOW) for item in wanted}

    def close(self) -> None:
        """End the threads, without waiting for a disk that hangs."""
        self._pool.close()
        self._checks.close()

    def set_aside(self) -> None:
        """A read hangs: the next ones do not wait for it."""
        self._pool.set_aside()

    def _read_and_check(self, call: _Call, run: list[Wanted]) -> "Future[None] | None":
        """The check, where that goes on elsewhere: a disk should always have as many reads as it was promised."""
        found = self._read_run(call, run)
        if not all(read.body is not None for read in found):
            self._check(call, found)  # before this thread's buffer is read to again
            return None
        own = [read._replace(part=memoryview(bytes(read.part))) for read in found]
        try:
            return self._checks.submit(self._check, call, own)
        except RuntimeError:  # it was closed meanwhile
            self._check(call, own)
            return None

    def _check(self, call: _Call, found: Sequence[_Read]) -> None:
        for read in found:
            self._finish(call, *read)

    def _read_run(self, call: _Call, run: list[Wanted]) -> list[_Read]:
        if call.over:
            return []
        scratch = self._scratch(sum(item.place.length for item in run))
        buffers: list[memoryview] = []
        parts: list[tuple[memoryview, memoryview | None]] = []  # header (and body), body in place
        at = 0
        for item in run:
            head = _in_place(item) if call.in_place else 0
            part = scratch[at : at + (head or item.place.length)]
            at += len(part)
            buffers += [part, item.out] if head else [part]
            parts.append((part, item.out if head else None))
        try:
            count = run[0].handle.read(buffers, run[0].place.offset)
        except OSError as error:
            self._settle(call, {item.row: reason_of(error) for item in run})
            return []
        found: list[_Read] = []
        for item, (part, body) in zip(run, parts, strict=True):
            there = min(max(count, 0), item.place.length)
            count -= item.place.length
            found.append(_Read(item, part[:there], body if there == item.place.length else None))
        return found

    def _finish(self, call: _Call, item: Wanted, part: memoryview, body: memoryview | None) -> None:
        reason: DropReason | None = None
        try:
            found = unpack(part)
            stored = (
                part[found.header_bytes : found.header_bytes + found.body_bytes] if body is None else body
            )
            verify(found, stored, item.header)
            if body is None:
                with call.lock:
                    if call.over:
                        return
                    self._codec.decode(found, stored, item.header, item.out)
            elif found.coding != Coding.RAW:
                reason = DropReason.UNDECODABLE
        except BadBlockError as error:
            reason = error.reason
        self._settle(call, {item.row: reason})

    def _settle(self, call: _Call, results: dict[int, DropReason | None]) -> None:
        with call.lock:
            if not call.over:
                call.results.update(results)

    def _scratch(self, size: int) -> memoryview:
        """This thread's own buffer; it grows with the largest run."""
        buffer: memoryview | None = getattr(self._local, "buffer", None)
        if buffer is None or len(buffer) < size:
            buffer = self._local.buffer = aligned_buffer(max(size, self._read_bytes))
        return buffer


def _in_place(item: Wanted) -> int:
    """Bytes of header before a body that can be read to where it belongs; 0 where it cannot."""
    if item.place.coding != Coding.RAW or not is_aligned(item.out):
        return 0
    head = header_size(len(item.header.tokens) // TOKEN_BYTES, ALIGNMENT)
    return head if head + aligned(len(item.out)) == item.place.length else 0


def _runs(wanted: Sequence[Wanted], limit: int) -> Iterator[list[Wanted]]:
    """Neighbouring records in one read, at most `limit` bytes unless one alone is larger."""
    run: list[Wanted] = []
    size = 0
    for item in sorted(wanted, key=lambda item: item.place[:2]):
        place = item.place
        last = run[-1].place if run else place
        follows = (place.segment, place.offset) == (last.segment, last.offset + last.length)
        if run and not (follows and size + place.length <= limit and len(run) < _RECORDS_AT_ONCE):
            yield run
            run, size = [], 0
        run.append(item)
        size += place.length
    if run:
        yield run
