"""The segments of a folder and the index over them: opening, recovery, and which segment goes first."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import RLock

from cache_core.tiers.disk.index import (
    Added,
    DiskIndex,
    IndexDamagedError,
    IndexFailedError,
    Place,
    SegmentRow,
)
from cache_core.tiers.disk.segment import Handle, Segment, record_size
from cache_core.tiers.files import ALIGNMENT, Files, sync_folder

_OPEN_FILES = 256  # handles kept; a reader that still uses an older one keeps it open itself
_ADDED_AT_ONCE = 1000


class Catalog:
    """Reads may come from any thread; everything that changes it happens under the tier's write lock."""

    def __init__(self, folder: Path, files: Files, direct: bool) -> None:
        self.folder = folder
        self.segments: dict[int, Segment] = {}
        self.rebuilt = 0  # times
        self._files = files
        self._direct = direct
        self._lock = RLock()
        self._ticks = 0
        self._next = 1
        self._open: dict[int, Segment] = {}  # in order of opening
        self.index = self._opened_index()
        try:
            self._load()
        except IndexDamagedError:
            self.index = self._new_index()
            self.segments.clear()
            self._load()

    def create(self, owner: bytes | None) -> Segment:
        """A new, empty segment, for records of that identity alone, or of all."""
        with self._lock:
            segment = self._segment(self._next, 0, self._tick(), owner)
            self._next += 1
        segment.create()
        sync_folder(self.folder)  # its blocks must not outlive its name
        with self._lock:
            self.segments[segment.number] = segment
        return segment

    def handle(self, place: Place) -> Handle | None:
        """The open file a place lies in; None where the place cannot be right.

        Raises:
            OSError: the file cannot be opened.
        """
        with self._lock:
            segment = self.segments.get(place.segment)
            if segment is None or not _fits(place, segment.size):
                return None
            return segment.opened()

    @property
    def ticks(self) -> int:
        """Logical time now."""
        return self._ticks

    def touch(self, numbers: Iterable[int]) -> int:
        """Something in these segments was used now; says which logical time that is."""
        with self._lock:
            now = self._tick()
            for number in numbers:
                if number in self.segments:
                    self.segments[number].used = now
            return now

    def least_use(self, numbers: Iterable[int]) -> int | None:
        """The last use that is longest ago, of these segments; None: one of them is gone."""
        with self._lock:
            segments = [self.segments.get(number) for number in numbers]
        used = [segment.used for segment in segments if segment is not None]
        return min(used) if used and len(used) == len(segments) else None

    def next_to_go(self, share: int) -> Segment | None:
        """The segment that was used longest ago, of a scope with more than `share` bytes where there is one.

        A scope that is alone gives what is oldest. Segments of several scopes count as one scope's.
        """
        with self._lock:
            segments = list(self.segments.values())
        held: Counter[bytes | None] = Counter()
        for segment in segments:
            held[segment.owner] += segment.size
        over = [segment for segment in segments if held[segment.owner] > share] if len(held) > 1 else []
        return min(over or segments, key=lambda segment: (segment.used, segment.number), default=None)

    def drop(self, segment: Segment) -> int:
        """Forget a segment and what lies in it; says how many blocks.

        The file goes first: that needs no room on a full disk, and rows without a file are only misses.

        Raises:
            OSError: the file cannot be removed; nothing was changed.
        """
        self._files.unlink(segment.path)
        with self._lock:
            self.segments.pop(segment.number, None)
            self._open.pop(segment.number, None)
        try:
            return self.index.remove_segment(segment.number)
        except IndexFailedError:
            return 0

    def segment_bytes(self) -> int:
        """What segments take on disk."""
        with self._lock:
            return sum(segment.size for segment in self.segments.values())

    def used_bytes(self) -> int:
        """What segments and index take on disk."""
        return self.segment_bytes() + sum(_size(path) for path in self._index_files())

    def rows(self, segments: Iterable[Segment]) -> list[SegmentRow]:
        """Segments as the index keeps them."""
        return [SegmentRow(segment.number, segment.size, segment.used) for segment in segments]

    def rebuild(self) -> None:
        """Make the index anew from the segments' headers."""
        with suppress(IndexDamagedError, IndexFailedError):  # it is thrown away
            self.index.close()
        self.index = self._new_index()
        self.rebuilt += 1
        for segment in sorted(self.segments.values(), key=lambda segment: segment.number):
            self._scan(segment)

    def close(self) -> None:
        """Write down the order of use, and let go of every file."""
        with self._lock:
            rows = self.rows(self.segments.values())
            self.segments.clear()
            self._open.clear()
        try:
            self.index.put_segments(rows)
        finally:
            self.index.close()

    # Opening.

    def _opened_index(self) -> DiskIndex:
        try:
            return DiskIndex(self._index_path)
        except IndexDamagedError:
            return self._new_index()

    def _new_index(self) -> DiskIndex:
        for path in self._index_files():
            self._files.unlink(path)
        return DiskIndex(self._index_path)

    def _load(self) -> None:
        rows = {row.id: row for row in self.index.segments() if _is_row(row)}
        paths = {
            number: path for path in self.folder.glob("*.segment") if (number := _number(path)) is not None
        }
        self._next = max([*rows, *paths], default=0) + 1
        self._ticks = max((row.used for row in rows.values()), default=0)
        for number in rows.keys() - paths.keys():
            self.index.remove_segment(number)
        owners = self.index.owners()
        for number, path in sorted(paths.items()):
            self._load_segment(number, path, rows.get(number), owners.get(number))

    def _load_segment(self, number: int, path: Path, row: SegmentRow | None, owner: bytes | None) -> None:
        """A segment the index knows is taken as it says, another one is read for its headers."""
        size = path.stat().st_size // ALIGNMENT * ALIGNMENT
        segment = self._segment(number, size, self._tick(), owner)
        self.segments[number] = segment
        if row is None:
            self.rebuilt += self.index.fresh and not self.rebuilt
            self._scan(segment)
            return
        # what lies behind was written, but the process ended before the index knew
        segment.size, segment.used = min(row.size, size), row.used
        segment.cut()

    def _scan(self, segment: Segment) -> None:
        found = self._found(segment)
        row = self.rows([segment])
        identities: set[bytes] = set()
        while batch := list(islice(found, _ADDED_AT_ONCE)):
            self.index.add(batch, row)
            identities.update(added.identity for added in batch)
        self.index.put_segments(row)
        segment.owner = identities.pop() if len(identities) == 1 else None

    def _found(self, segment: Segment) -> Iterator[Added]:
        for offset, envelope in segment.records():
            if envelope is None:
                continue
            header = envelope.header
            place = Place(segment.number, offset, record_size(envelope), int(envelope.coding))
            yield Added(header.key, place, header.identity)

    def _segment(self, number: int, size: int, used: int, owner: bytes | None) -> Segment:
        path = self.folder / f"{number:010d}.segment"
        return Segment(self._files, path, number, size, used, self._direct, owner, self._keep_open)

    def _tick(self) -> int:
        self._ticks += 1
        return self._ticks

    def _keep_open(self, segment: Segment) -> None:
        with self._lock:
            self._open.pop(segment.number, None)
            self._open[segment.number] = segment
            if len(self._open) > _OPEN_FILES:
                self._open.pop(next(iter(self._open))).handle = None

    @property
    def _index_path(self) -> Path:
        return self.folder / "index.sqlite"

    def _index_files(self) -> list[Path]:
        return [self._index_path.with_name(self._index_path.name + end) for end in ("", "-wal", "-shm")]


def _fits(place: Place, size: int) -> bool:
    """A damaged index may say anything."""
    if not all(isinstance(number, int) for number in place):
        return False
    return place.offset >= 0 and place.offset % ALIGNMENT == 0 < place.length <= size - place.offset


def _is_row(row: SegmentRow) -> bool:
    return all(isinstance(number, int) and number >= 0 for number in row)


def _number(path: Path) -> int | None:
    return int(path.stem) if path.stem.isascii() and path.stem.isdigit() else None


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
