"""Appending records to segments that are not full yet, and starting new ones."""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cache_core.block_header import BlockHeader, Body, pack
from cache_core.drop_reason import DropReason
from cache_core.tiers.disk.index import Added, Place
from cache_core.tiers.disk.segment import Segment
from cache_core.tiers.files import ALIGNMENT, aligned, aligned_buffer, reason_of

_ACTIVE = 64  # segments that may be appended to, of as many scopes


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
    """Not locked: the tier's write lock is held around every call.

    Args:
        create: makes a segment, for one identity alone or (None) for all.
        apart: whether each identity has segments of its own.
    """

    def __init__(
        self, create: Callable[[bytes | None], Segment], segment_limit: int, write_bytes: int, apart: bool
    ) -> None:
        self._create = create
        self._segment_limit = segment_limit
        self._write_bytes = write_bytes
        self._apart = apart
        self._buffer = aligned_buffer(0)
        self._active: dict[bytes | None, Segment] = {}  # by owner; the one written to last stands last

    def seal(self, segments: Container[Segment] | None = None) -> None:
        """Nothing is appended to these segments (None: to any that there is) any more."""
        for owner, segment in list(self._active.items()):
            if segments is None or segment in segments:
                del self._active[owner]

    def append(self, records: Sequence[Record], sync: bool) -> Appended:
        """Write records one after the other; those that are whole on the disk count, whatever happens."""
        appended = Appended()
        try:
            for batch in self._batches(records):
                self._append(batch, appended)
        except OSError as error:
            appended.failed = reason_of(error)
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
            self.seal([segment])
        appended.added.clear()

    def _append(self, batch: list[Record], appended: Appended) -> None:
        size = sum(record.length for record in batch)
        segment = self._room_for(self._owner(batch[0]), size)
        offset = segment.size
        appended.before.setdefault(segment, segment.size)
        try:
            segment.append(self._assembled(batch, size))
        except OSError:  # one that failed once is not appended to again; its good part stays
            _cut(segment)
            self.seal([segment])
            raise
        for record in batch:
            place = Place(segment.number, offset, record.length, record.coding)
            appended.added.append(Added(record.key, place, record.identity))
            offset += record.length

    def _room_for(self, owner: bytes | None, size: int) -> Segment:
        segment = self._active.pop(owner, None)
        if segment is None or (segment.size and segment.size + size > self._segment_limit):
            segment = self._create(owner)
        self._active[owner] = segment
        if len(self._active) > _ACTIVE:
            del self._active[next(iter(self._active))]
        return segment

    def _owner(self, record: Record) -> bytes | None:
        return record.identity if self._apart else None

    def _batches(self, records: Sequence[Record]) -> Iterator[list[Record]]:
        """Runs of records for one write each, in their order."""
        batch: list[Record] = []
        size = 0
        for record in records:
            over = size + record.length > min(self._write_bytes, self._segment_limit)
            if batch and (over or self._owner(record) != self._owner(batch[0])):
                yield batch
                batch, size = [], 0
            batch.append(record)
            size += record.length
        if batch:
            yield batch

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


def _cut(segment: Segment) -> None:
    try:
        segment.cut()
    except OSError:
        return  # nothing points there, and the next start cuts it


def record_of(header: BlockHeader, body: Body) -> Record:
    """A block as it goes into a segment."""
    head = pack(header, body, ALIGNMENT)
    return Record(header.key, header.identity, head, memoryview(body.data), int(body.coding))
