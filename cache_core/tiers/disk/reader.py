"""Parallel reads of records, straight into the caller's buffers where those allow it."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import NamedTuple

from cache_core.block_header import BadBlockError, BlockHeader, Coding, header_size, unpack, verify
from cache_core.drop_reason import DropReason
from cache_core.tiers.codec import Codec
from cache_core.tiers.disk.index import Place
from cache_core.tiers.disk.segment import Handle
from cache_core.tiers.files import ALIGNMENT, aligned, aligned_buffer, is_aligned, reason_of
from cache_core.tokens import TOKEN_BYTES

_RECORDS_AT_ONCE = 256  # two buffers a record, and the system takes 1,024


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


class Reader:
    """Reads and checks records with `depth` threads."""

    def __init__(self, codec: Codec, read_bytes: int, depth: int) -> None:
        self._codec = codec
        self._read_bytes = read_bytes
        self._pool = ThreadPoolExecutor(depth, thread_name_prefix="kvgate-disk")
        self._local = threading.local()

    def read(self, wanted: Sequence[Wanted], timeout: float | None) -> dict[int, DropReason | None]:
        """Read everything; by row, why it was not served, or None where it was."""
        call = _Call(in_place=timeout is None)
        runs = list(_runs(wanted, self._read_bytes))
        if timeout is None and len(runs) == 1:
            self._read_run(call, runs[0])
            return call.results
        # a thread left alone with a hanging disk must not find the next call's buffers behind it
        futures = [self._pool.submit(self._read_run, call, run) for run in runs]
        done, late = wait(futures, timeout)
        with call.lock:
            call.over = True
        for future in late:
            future.cancel()
        for future in done:
            future.result()
        return {item.row: call.results.get(item.row, DropReason.SLOW) for item in wanted}

    def close(self) -> None:
        """End the threads, without waiting for a disk that hangs."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read_run(self, call: _Call, run: list[Wanted]) -> None:
        if call.over:
            return
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
            return
        for item, (part, body) in zip(run, parts, strict=True):
            there = min(max(count, 0), item.place.length)
            count -= item.place.length
            self._finish(call, item, part[:there], body if there == item.place.length else None)

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
