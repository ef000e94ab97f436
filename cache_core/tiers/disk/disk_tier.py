"""The disk tier: blocks in append-only segments, an index over them, and a budget."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import TypeVar

import numpy as np

from cache_core.block_header import BlockHeader
from cache_core.drop_reason import DropReason
from cache_core.metrics import CacheObserver, NullObserver
from cache_core.purge_numbers import PurgeNumbers
from cache_core.tick_times import TickTimes
from cache_core.tiers.base import (
    FULL,
    BlockBytes,
    GoesOn,
    Mask,
    Tier,
    TierCounters,
    TierStats,
    Watermarks,
    buffers_of,
    for_ever,
)
from cache_core.tiers.disk.catalog import Catalog
from cache_core.tiers.disk.cleaning import dead_share, mostly_dead, rewrite
from cache_core.tiers.disk.index import DiskIndex, IndexDamagedError, IndexFailedError, Place
from cache_core.tiers.disk.integrity import check
from cache_core.tiers.disk.options import DiskOptions
from cache_core.tiers.disk.purge import PurgeJournal, erase
from cache_core.tiers.disk.reader import Reader, Wanted
from cache_core.tiers.disk.room import DiskRoom
from cache_core.tiers.disk.segment import Segment
from cache_core.tiers.disk.writer import Record, Writer, record_of
from cache_core.tiers.errors import TierError
from cache_core.tiers.files import Files, make_private, probe_folder, reason_of, supports_direct
from cache_core.tiers.folder_lock import FolderLock

_T = TypeVar("_T")
_PROBE = "probe"  # a file's name
# Bytes that do not come back however often they are read: such a block is forgotten. Other failures may pass.
_PASSING = (DropReason.SLOW, DropReason.PERMISSION, DropReason.WRONG_SIZE, DropReason.DISK_FULL)


class DiskTier(Tier):
    """Blocks in a folder that is this process's alone; what was there before is found again.

    Reads go on in parallel, with each other and with a write; writes, deletes, purges and cleaning take turns.
    Over its budget it drops the segment that was used longest ago, of a scope over its share where there is one.
    """

    def __init__(
        self,
        options: DiskOptions,
        files: Files | None = None,
        observer: CacheObserver | None = None,
        clock: Callable[[], float] = time.monotonic,  # seconds, for the age of what is evicted
    ) -> None:
        """Open or make the folder.

        Raises:
            FolderInUseError: another process, or another tier in this one, has it.
            TierError: the folder cannot be made, read or written.
        """
        self.options = options
        self._files = files or Files()
        self._write = RLock()
        self._observer = observer or NullObserver()
        self._counters = TierCounters("disk", self._observer)
        self._clock = clock
        self._purges = PurgeNumbers()
        self._closed = False
        with _opening(options.folder):
            make_private(options.folder)
            self._lock = FolderLock(options.folder)
            try:
                self._open()
            except BaseException:
                self._lock.release()
                raise

    def _open(self) -> None:
        options, folder = self.options, self.options.folder
        self.direct = options.direct and supports_direct(self._files, folder)
        self._catalog = Catalog(folder, self._files, self.direct)
        self._ticks = TickTimes(self._clock, self._catalog.ticks)
        self._writer = Writer(self._catalog.create, options.segment_limit, options.write_bytes, options.apart)
        self._room = DiskRoom(
            options,
            self._catalog,
            self._writer,
            self._ticks,
            self._counters,
            self._observer,
            self._indexed,
            self._repair,
        )
        self._journal = PurgeJournal(folder)
        for identity in self._journal.pending():
            self._erase(identity)
        self._reader = Reader(options.codec, options.read_bytes, options.queue_depth)
        self._room.make(0)

    # What a tier does.

    def put(self, headers: Sequence[BlockHeader], blocks: BlockBytes) -> Mask:
        began = self._purges.now
        payloads = buffers_of(blocks)
        stored = self.contains([header.key for header in headers])
        rows = {header.key: row for row, header in enumerate(headers) if not stored[row]}
        batch: list[tuple[int, Record]] = []
        size = 0
        for row in rows.values():
            body = self.options.codec.encode(headers[row], payloads[row])
            self._counters.note(self.options.codec.outcome(headers[row], body))
            record = record_of(headers[row], body)
            if batch and size + record.length > self.options.segment_limit:
                self._store(batch, stored, began)
                batch, size = [], 0
            batch.append((row, record))
            size += record.length
        self._store(batch, stored, began)
        self._counters.add(written_bytes=sum(len(payloads[row]) for row in rows.values() if stored[row]))
        for row, header in enumerate(headers):  # one that is in the batch twice is written once
            stored[row] |= stored[rows.get(header.key, row)]
        return stored

    def get(self, headers: Sequence[BlockHeader], out: BlockBytes, timeout: float | None = None) -> Mask:
        outs, began = buffers_of(out), self._purges.now
        keys = [header.key for header in headers]
        places = self._places(keys)
        results: dict[int, DropReason | None] = {}
        wanted = []
        for row, place in enumerate(places):
            if place is not None:
                item = self._wanted(row, headers[row], outs[row], place)
                if isinstance(item, DropReason):
                    results[row] = item
                else:
                    wanted.append(item)
        results |= self._reader.read(wanted, timeout)
        if began != self._purges.now:
            self._forget_purged(keys, outs, results)
        self._settle(keys, places, results)
        served = np.zeros(len(headers), dtype=np.bool_)
        served[[row for row, reason in results.items() if reason is None]] = True
        self._count(served, places, outs)
        return served

    def contains(self, keys: Sequence[bytes]) -> Mask:
        return np.array([place is not None for place in self._places(keys)], dtype=np.bool_)

    def stamp(self, keys: Sequence[bytes]) -> int | None:
        """The last use of the segment, of those they lie in, that goes first."""
        places = self._places(keys)
        numbers = {place.segment for place in places if place is not None}
        if None in places or not numbers:
            return None
        return self._catalog.least_use(numbers)

    def kept_since(self, moment: int) -> bool:
        return self._room.kept_since(moment)

    def evicted_lately(self, keys: Sequence[bytes]) -> Mask:
        return self._room.evicted_lately(keys)

    def delete(self, keys: Sequence[bytes]) -> int:
        with self._write:
            self._room.lose()
            return self._indexed(lambda index: index.remove(keys), 0)

    def touch(self, keys: Sequence[bytes]) -> None:
        self._touch(self._places(keys))

    def note_purge(self, identity: bytes) -> None:
        # For a crash before the purge's end, or while writes hang; a disk too full for it does not stop us.
        with suppress(OSError):
            self._journal.add(identity)

    def purge(self, identity: bytes) -> int:
        self._require_open()
        self.note_purge(identity)
        with self._write:
            self._require_open()
            self._purges.add(identity)
            self._room.forget_evicted()
            self._room.lose()
            self._writer.seal()
            return self._erase(identity)

    def clear(self) -> int:
        """As `Tier.clear`; what cannot be removed stays, and is counted."""
        with self._write:
            self._require_open()
            self._writer.seal()
            self._room.lose()
            return sum(self._room.removed(segment) for segment in list(self._catalog.segments.values()))

    def clean(self, goes_on: GoesOn = for_ever, marks: Watermarks = FULL) -> int:
        freed = 0
        for segment, size in self._mostly_dead():  # others may write between two segments
            if not goes_on():
                self._room.changed = True  # the rest is for the next time
                break
            with self._write:
                freed += self._clean(segment, size, goes_on)
        return freed + self._room.sweep(goes_on, marks, self._write)

    def probe(self) -> None:
        probe_folder(self._files, self.options.folder, _PROBE, self.direct)

    def set_aside(self) -> None:
        self._reader.set_aside()

    def stats(self) -> TierStats:
        count = self._indexed(lambda index: index.count(), 0)
        return self._counters.snapshot(count, self._catalog.used_bytes(), self.options.capacity_bytes)

    def close(self) -> None:
        with self._write:
            if self._closed:
                return
            self._closed = True
            self._reader.close()
            self._writer.seal()
            with suppress(IndexDamagedError, IndexFailedError):  # the next start repairs it
                self._catalog.close()
            self._lock.release()

    def check_integrity(self) -> None:
        """As `integrity.check`."""
        with self._write:
            check(self._catalog)

    # Reading.

    def _places(self, keys: Sequence[bytes]) -> list[Place | None]:
        return self._indexed(lambda index: index.find(keys), [None] * len(keys))

    def _wanted(self, row: int, header: BlockHeader, out: memoryview, place: Place) -> Wanted | DropReason:
        try:
            handle = self._catalog.handle(place)
        except OSError as error:
            return reason_of(error)
        return DropReason.MISSING if handle is None else Wanted(row, header, out, place, handle)

    def _forget_purged(
        self, keys: Sequence[bytes], outs: Sequence[memoryview], results: dict[int, DropReason | None]
    ) -> None:
        """A purge went on while these were read: what it took is not handed out."""
        for row, place in enumerate(self._places(keys)):
            if place is None and results.get(row, DropReason.PURGED) is None:
                results[row] = DropReason.PURGED
                outs[row][:] = bytes(len(outs[row]))

    def _settle(
        self, keys: Sequence[bytes], places: Sequence[Place | None], results: dict[int, DropReason | None]
    ) -> None:
        """Count what was dropped, and forget what is bad for good."""
        bad = []
        for row, reason in results.items():
            place = places[row]
            if reason is not None and place is not None:
                self._counters.drop(reason)
                if reason not in _PASSING:
                    bad.append((keys[row], place))
        if bad:
            self._room.lose()
            self._indexed(lambda index: index.remove_at(bad), None)

    def _count(self, served: Mask, places: Sequence[Place | None], outs: Sequence[memoryview]) -> None:
        rows = np.flatnonzero(served).tolist()
        self._touch([places[row] for row in rows])
        self._counters.add(
            hits=len(rows),
            misses=sum(place is None for place in places),
            read_bytes=sum(len(outs[row]) for row in rows),
        )

    def _touch(self, places: Sequence[Place | None]) -> None:
        self._ticks.note(self._catalog.touch({place.segment for place in places if place is not None}))

    # Writing; under the write lock.

    def _store(self, batch: Sequence[tuple[int, Record]], stored: Mask, began: int) -> None:
        if not batch:
            return
        with self._write:
            self._require_open()
            allowed = [(row, record) for row, record in batch if self._purges.last(record.identity) <= began]
            self._counters.drop(DropReason.PURGED, len(batch) - len(allowed))
            records = [record for _, record in allowed]
            keys = self._append(records)
        for row, record in allowed:
            stored[row] = record.key in keys
        self._counters.add(stored=len(keys))

    def _append(self, records: Sequence[Record]) -> set[bytes]:
        """The keys of what is on disk and in the index now."""
        no_room = self._room.make(sum(record.length for record in records))
        if no_room is not None:
            self._counters.drop(no_room, len(records))
            return set()
        appended = self._writer.append(records, self.options.sync)
        if appended.failed is not None:
            self._counters.drop(appended.failed, len(records) - len(appended.added))
            if appended.failed is DropReason.DISK_FULL:
                self._room.is_full()
        try:
            self._catalog.index.add(appended.added, self._catalog.rows(appended.before))
        except IndexFailedError:
            self._counters.drop(DropReason.INDEX_ERROR, len(appended.added))
            self._writer.take_back(appended)
        except IndexDamagedError:
            self._repair(self._catalog.index)  # which finds them in their segments
        return {added.key for added in appended.added}

    def _erase(self, identity: bytes) -> int:
        count = self._indexed(lambda index: index.remove_identity(identity), 0)
        erase(self._catalog, self._indexed(lambda index: index.holders(identity), None), identity)
        self._indexed(lambda index: index.release_identity(identity), None)
        with suppress(OSError):  # it is erased once more at the next start, then
            self._journal.remove(identity)
        return count

    def _mostly_dead(self) -> list[tuple[Segment, int]]:
        """Segments to be cleaned, with their live bytes. The index is asked only where something may have died."""
        if not self._room.changed:
            return []
        self._room.changed = False
        with self._write:
            unknown: dict[int, tuple[int, int]] | None = None
            live = self._indexed(lambda index: index.live_bytes(), unknown)
            if live is None:
                self._room.changed = True
                return []
            dead = mostly_dead(self._catalog, live, self.options.clean_below)
            self._writer.seal([segment for segment, _ in dead])
            share = dead_share(self._catalog, live)
        self._observer.fragmentation("disk", share)
        return dead

    def _clean(self, segment: Segment, live: int, goes_on: GoesOn) -> int:
        """Rewrite one segment; says how many bytes that freed."""
        catalog, options = self._catalog, self.options
        still_there = catalog.segments.get(segment.number) is segment
        if not still_there or catalog.used_bytes() + live > self._room.bytes:
            return 0
        with suppress(OSError, IndexFailedError, IndexDamagedError):
            self._room.lose()  # what moves lies in a segment that may have been used longer ago
            moved = rewrite(
                catalog, self._writer, segment, self._counters, options.write_bytes, options.sync, goes_on
            )
            if moved:
                return segment.size - live
        return 0

    # The index, whatever it is up to.

    def _indexed(self, ask: Callable[[DiskIndex], _T], otherwise: _T) -> _T:
        """What the index says; it is built anew where it is damaged, and `otherwise` holds where it fails."""
        for _ in range(2):
            self._require_open()
            index = self._catalog.index
            try:
                return ask(index)
            except IndexFailedError:
                self._counters.drop(DropReason.INDEX_ERROR, 1)
                return otherwise
            except IndexDamagedError:
                self._repair(index)
        return otherwise

    def _repair(self, damaged: DiskIndex) -> None:
        with self._write:
            self._require_open()
            self._room.lose()
            if self._catalog.index is damaged:
                self._writer.seal()
                with suppress(IndexFailedError, IndexDamagedError):
                    self._catalog.rebuild()

    def _require_open(self) -> None:
        if self._closed:
            raise TierError("the disk tier is closed")


@contextmanager
def _opening(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TierError(f"{folder} cannot be used as a disk tier: {error}") from error
    except (IndexDamagedError, IndexFailedError) as error:
        raise TierError(f"the index in {folder} cannot be used: {error}") from error
