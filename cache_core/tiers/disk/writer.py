"""Appending records to the newest segment, and starting the next one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cache_core.block_header import BlockHeader, Body, DropReason, pack
from cache_core.tiers.disk.index import Added, Place
from cache_core.tiers.disk.segment import Segment
from cache_core.tiers.files import ALIGNMENT, aligned, aligned_buffer, reason_of


class Record(NamedTuple):
    """One block ready to be written."""

    key: bytes
    identity: bytes
    head: bytes  # padded to the alignment
    body: memoryview
    coding: int

    @property
    def length(self) -> int:
        """Bytes in the segment."""
        return aligned(len(self.head) + len(self.body))


@dataclass(slots=True)
class Appended:
    """What came of a batch."""

    added: list[Added] = field(default_factory=list)  # whole on the disk
    before: dict[Segment, int] = field(default_factory=dict)  # segments with something new, their old sizes
    failed: DropReason | None = None  # why the rest was not written


class Writer:
    """Not locked: the tier's write lock is held around every call."""

    def __init__(self, create: Callable[[], Segment], segment_limit: int, write_bytes: int) -> None:
        self._create = create
        self._segment_limit = segment_limit
        self._write_bytes = write_bytes
        self._buffer = aligned_buffer(0)
        self.active: Segment | None = None

    def seal(self) -> None:
        """Nothing is appended to the newest segment any more."""
        self.active = None

    def append(self, records: Sequence[Record], sync: bool) -> Appended:
        """Write records one after the other; those that are whole on the disk count, whatever happens."""
        appended = Appended()
        try:
            for batch in _batches(records, self._write_bytes, self._segment_limit):
                self._append(batch, appended)
        except OSError as error:
            appended.failed = reason_of(error)
            self._give_up()
        try:
            for segment in appended.before if sync else ():
                segment.sync()
        except OSError as error:
            self.take_back(appended)
            appended.failed = reason_of(error)
        return appended

    def take_back(self, appended: Appended) -> None:
        """Cut what was appended off its segments again: the index does not know it."""
        for segment, size in appended.before.items():
            segment.size = size
            _cut(segment)
        appended.added.clear()
        self.active = None

    def _append(self, batch: list[Record], appended: Appended) -> None:
        size = sum(record.length for record in batch)
        if self.active is None or (self.active.size and self.active.size + size > self._segment_limit):
            self.active = None
            self.active = self._create()
        segment, offset = self.active, self.active.size
        appended.before.setdefault(segment, segment.size)
        segment.append(self._assembled(batch, size))
        for record in batch:
            place = Place(segment.number, offset, record.length, record.coding)
            appended.added.append(Added(record.key, place, record.identity))
            offset += record.length

    def _assembled(self, batch: list[Record], size: int) -> memoryview:
        if len(self._buffer) < size:
            self._buffer = aligned_buffer(max(size, self._write_bytes))
        at = 0
        for record in batch:
            body = at + len(record.head)
            end, next_at = body + len(record.body), at + record.length
            self._buffer[at:body] = record.head
            self._buffer[body:end] = record.body
            self._buffer[end:next_at] = bytes(next_at - end)
            at = next_at
        return self._buffer[:size]

    def _give_up(self) -> None:
        """A segment that failed once is not appended to again; its good part stays."""
        if self.active is not None:
            _cut(self.active)
        self.active = None


def _cut(segment: Segment) -> None:
    try:
        segment.cut()
    except OSError:
        return  # nothing points there, and the next start cuts it


def record_of(header: BlockHeader, body: Body) -> Record:
    """A block as it goes into a segment."""
    head = pack(header, body, ALIGNMENT)
    return Record(header.key, header.identity, head, memoryview(body.data), int(body.coding))


def _batches(records: Sequence[Record], write_bytes: int, segment_limit: int) -> list[list[Record]]:
    """Runs of records for one write each."""
    batches: list[list[Record]] = []
    size = 0
    for record in records:
        if not batches or size + record.length > min(write_bytes, segment_limit):
            batches.append([])
            size = 0
        batches[-1].append(record)
        size += record.length
    return batches
