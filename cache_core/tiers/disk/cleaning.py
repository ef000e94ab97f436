"""Segment cleaning: live records leave a mostly dead segment, then it goes as a whole."""

from collections.abc import Iterator, Mapping

from cache_core.block_header import BadBlockError, unpack, verify_body
from cache_core.drop_reason import DropReason
from cache_core.tiers.base import GoesOn, TierCounters
from cache_core.tiers.disk.catalog import Catalog
from cache_core.tiers.disk.index import Added, IndexFailedError, Place
from cache_core.tiers.disk.segment import Segment
from cache_core.tiers.disk.writer import Record, Writer
from cache_core.tiers.files import aligned_buffer, reason_of

Moving = tuple[Record, Place]


Live = Mapping[int, tuple[int, int]]  # see DiskIndex.live_bytes


def dead_share(catalog: Catalog, live: Live) -> float:
    """Share of the segments' bytes that no block can be found in."""
    sizes = {number: segment.size for number, segment in list(catalog.segments.items())}
    total = sum(sizes.values())
    return 1.0 - sum(live.get(number, (0, 0))[0] for number in sizes) / total if total else 0.0


def mostly_dead(catalog: Catalog, live: Live, below: float) -> list[tuple[Segment, int]]:
    """Segments whose live share is under `below`, the deadest first, with their live bytes."""
    shares = [(segment, live.get(segment.number, (0, 0))[0]) for segment in list(catalog.segments.values())]
    dead = [(segment, size) for segment, size in shares if size < below * segment.size or not size]
    return sorted(dead, key=lambda pair: pair[1] / max(pair[0].size, 1))


def rewrite(
    catalog: Catalog,
    writer: Writer,
    segment: Segment,
    counters: TierCounters,
    batch_bytes: int,
    sync: bool,
    goes_on: GoesOn,
) -> bool:
    """Copy what lives to newer segments and drop this one; False where that failed or ended, and nothing is lost.

    Bodies are copied as they are, so neither key nor codec is needed.
    """
    for batch in _batches(_live(catalog, segment, counters), batch_bytes):
        if not goes_on() or not _move(catalog, writer, batch, sync):
            return False
    catalog.drop(segment)
    return True


def _move(catalog: Catalog, writer: Writer, batch: list[Moving], sync: bool) -> bool:
    appended = writer.append([record for record, _ in batch], sync)
    moved = list(zip(appended.added, (old for _, old in batch), strict=False))
    try:
        catalog.index.move(moved, catalog.rows(appended.before))
    except IndexFailedError:
        writer.take_back(appended)
        return False
    return appended.failed is None


def _live(catalog: Catalog, segment: Segment, counters: TierCounters) -> Iterator[Moving]:
    bad: list[tuple[bytes, Place]] = []
    for key, place, identity in catalog.index.in_segment(segment.number):
        try:
            yield _record(catalog, Added(key, place, identity)), place
        except BadBlockError as error:
            counters.drop(error.reason)
            bad.append((key, place))
    catalog.index.remove_at(bad)


def _record(catalog: Catalog, known: Added) -> Record:
    """A record as it lies there, checked as far as it can be without knowing who asks."""
    data = _read(catalog, known.place)
    found = unpack(data)
    body = data[found.header_bytes : found.header_bytes + found.body_bytes]
    verify_body(found, body)
    if (found.header.key, found.header.identity) != (known.key, known.identity):
        raise BadBlockError(DropReason.WRONG_BLOCK)
    head = bytes(data[: found.header_bytes])
    return Record(known.key, known.identity, head, body, int(found.coding))


def _read(catalog: Catalog, place: Place) -> memoryview:
    try:
        handle = catalog.handle(place)
        if handle is None:
            raise BadBlockError(DropReason.MISSING)
        buffer = aligned_buffer(place.length)
        return buffer[: handle.read([buffer], place.offset)]
    except OSError as error:
        raise BadBlockError(reason_of(error)) from error


def _batches(moving: Iterator[Moving], limit: int) -> Iterator[list[Moving]]:
    batch: list[Moving] = []
    size = 0
    for record, place in moving:
        batch.append((record, place))
        size += record.length
        if size >= limit:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
