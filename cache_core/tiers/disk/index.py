"""Where each block lies on disk, crash-safe, in SQLite: never a block's bytes or token ids."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import NamedTuple

FORMAT = 1  # of the tables; another one is as good as lost
_ASKED_AT_ONCE = 500  # parameters of one statement
_BEFORE_ALL = -(1 << 63)  # no segment has this number, however damaged the index is
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT", "SQLITE_SCHEMA", "SQLITE_ERROR")
_TABLES = """
CREATE TABLE identities(id INTEGER PRIMARY KEY, digest BLOB UNIQUE NOT NULL);
CREATE TABLE segments(id INTEGER PRIMARY KEY, size INTEGER NOT NULL, used INTEGER NOT NULL);
CREATE TABLE holdings(segment INTEGER, identity INTEGER, PRIMARY KEY(segment, identity)) WITHOUT ROWID;
CREATE TABLE blocks(key BLOB PRIMARY KEY, segment INTEGER NOT NULL, offset INTEGER NOT NULL,
  length INTEGER NOT NULL, coding INTEGER NOT NULL, identity INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX blocks_by_segment ON blocks(segment, length);
"""


class IndexDamagedError(Exception):
    """The index is not what it should be and has to be built anew from the segments."""


class IndexFailedError(Exception):
    """The index could not be read or written this time."""


class Place(NamedTuple):
    """Where a record lies: bytes `offset` to `offset + length` of a segment, header included."""

    segment: int
    offset: int
    length: int
    coding: int


class Added(NamedTuple):
    """A record to be found from now on."""

    key: bytes
    place: Place
    identity: bytes


class SegmentRow(NamedTuple):
    """What the index knows of a segment. `used` orders segments by last use; it is no time."""

    id: int
    size: int
    used: int


class DiskIndex:
    """One connection reads, one writes; any thread may call.

    Every method raises IndexDamagedError or IndexFailedError where SQLite does, and has changed nothing then.
    """

    def __init__(self, path: Path) -> None:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite's others copy its mode
        self.path = path
        self._lock, self._read_lock = Lock(), Lock()
        with _translated():
            self._db = _connect(path)
            try:
                self.fresh = _prepare(self._db)  # there was none, or one of another format
                self._reader = _connect(path)
            except BaseException:
                self._db.close()
                raise

    def find(self, keys: Sequence[bytes]) -> list[Place | None]:
        """The place of each key; None where it has none."""
        found: dict[bytes, Place] = {}
        with self._reading() as db:
            for start in range(0, len(keys), _ASKED_AT_ONCE):
                some = keys[start : start + _ASKED_AT_ONCE]
                marks = ",".join("?" * len(some))
                sql = f"SELECT key, segment, offset, length, coding FROM blocks WHERE key IN ({marks})"  # noqa: S608
                found |= {row[0]: Place(*row[1:]) for row in db.execute(sql, some)}
        return [found.get(key) for key in keys]

    def add(self, added: Sequence[Added], segments: Iterable[SegmentRow]) -> None:
        """Records that are whole in their segments now, and those segments' sizes."""
        with self._writing() as db:
            _put_segments(db, segments)
            ids = {digest: _identity(db, digest) for digest in {record.identity for record in added}}
            held = {(record.place.segment, ids[record.identity]) for record in added}
            db.executemany("INSERT OR IGNORE INTO holdings VALUES (?, ?)", held)
            rows = [(record.key, *record.place, ids[record.identity]) for record in added]
            db.executemany("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?, ?)", rows)

    def move(self, moved: Sequence[tuple[Added, Place]], segments: Iterable[SegmentRow]) -> None:
        """Records that were copied from another place; those that are not there any more stay away."""
        with self._writing() as db:
            _put_segments(db, segments)
            for record, old in moved:
                identity = _identity(db, record.identity)
                db.execute("INSERT OR IGNORE INTO holdings VALUES (?, ?)", (record.place.segment, identity))
                db.execute(
                    "UPDATE blocks SET segment = ?, offset = ?, length = ?, coding = ? "
                    "WHERE key = ? AND segment = ? AND offset = ?",
                    (*record.place, record.key, old.segment, old.offset),
                )

    def remove(self, keys: Sequence[bytes]) -> int:
        """Forget these keys; says how many there were."""
        with self._writing() as db:
            return sum(db.execute("DELETE FROM blocks WHERE key = ?", (key,)).rowcount for key in keys)

    def remove_at(self, places: Iterable[tuple[bytes, Place]]) -> None:
        """Forget a key that is still at that place."""
        sql = "DELETE FROM blocks WHERE key = ? AND segment = ? AND offset = ?"
        with self._writing() as db:
            db.executemany(sql, [(key, place.segment, place.offset) for key, place in places])

    def remove_segment(self, segment: int) -> int:
        """Forget a segment and what lies in it; says how many blocks."""
        with self._writing() as db:
            db.execute("DELETE FROM segments WHERE id = ?", (segment,))
            db.execute("DELETE FROM holdings WHERE segment = ?", (segment,))
            return db.execute("DELETE FROM blocks WHERE segment = ?", (segment,)).rowcount

    def remove_identity(self, identity: bytes) -> int:
        """Forget all blocks of an identity; says how many. Which segments hold its bytes stays known."""
        with self._writing() as db:
            return db.execute(
                "DELETE FROM blocks WHERE identity = (SELECT id FROM identities WHERE digest = ?1) AND segment "
                "IN (SELECT segment FROM holdings JOIN identities ON identity = id WHERE digest = ?1)",
                (identity,),
            ).rowcount

    def holders(self, identity: bytes) -> list[int]:
        """Segments with bytes of that identity, dead ones included."""
        sql = (
            "SELECT segment FROM holdings JOIN identities ON identity = id WHERE digest = ? ORDER BY segment"
        )
        with self._reading() as db:
            return [row[0] for row in db.execute(sql, (identity,))]

    def owners(self) -> dict[int, bytes]:
        """Of each segment with bytes of one identity alone, that one."""
        sql = (
            "SELECT segment, MIN(digest) FROM holdings JOIN identities ON identity = id "
            "GROUP BY segment HAVING COUNT(*) = 1"
        )
        with self._reading() as db:
            return {segment: bytes(digest) for segment, digest in db.execute(sql)}

    def release_identity(self, identity: bytes) -> None:
        """No segment has bytes of that identity any more."""
        with self._writing() as db:
            for (known,) in db.execute("SELECT id FROM identities WHERE digest = ?", (identity,)).fetchall():
                db.execute("DELETE FROM holdings WHERE identity = ?", (known,))
                db.execute("DELETE FROM identities WHERE id = ?", (known,))

    def segments(self) -> list[SegmentRow]:
        """All segments, in the order of their ids."""
        with self._reading() as db:
            return [SegmentRow(*row) for row in db.execute("SELECT id, size, used FROM segments ORDER BY id")]

    def put_segments(self, segments: Iterable[SegmentRow]) -> None:
        """Write down sizes and last use."""
        with self._writing() as db:
            _put_segments(db, segments)

    def live_bytes(self) -> dict[int, tuple[int, int]]:
        """Of each segment: bytes of records that can be found, and how many they are.

        One segment after the other, so that whoever looks for a block waits for one of them at most.
        """
        found: dict[int, tuple[int, int]] = {}
        segment = _BEFORE_ALL
        while True:
            with self._reading() as db:
                (after,) = db.execute(
                    "SELECT MIN(segment) FROM blocks WHERE segment > ?", (segment,)
                ).fetchone()
                if after is None:
                    return found
                sql = "SELECT SUM(length), COUNT(*) FROM blocks WHERE segment = ?"
                size, count = db.execute(sql, (after,)).fetchone()
            if not isinstance(after, int) or after <= segment:
                raise IndexDamagedError("segments are not numbers in their order")
            segment = after
            found[segment] = int(size or 0), count

    def in_segment(self, segment: int) -> list[tuple[bytes, Place, bytes]]:
        """Key, place and identity of what can be found in a segment, in order of offset."""
        sql = (
            "SELECT key, segment, offset, length, coding, digest FROM blocks "
            "JOIN identities ON identity = id WHERE segment = ? ORDER BY offset"
        )
        with self._reading() as db:
            return [(row[0], Place(*row[1:5]), row[5]) for row in db.execute(sql, (segment,))]

    def keys_in(self, segment: int) -> list[bytes]:
        """Keys of what can be found in a segment."""
        with self._reading() as db:
            return [row[0] for row in db.execute("SELECT key FROM blocks WHERE segment = ?", (segment,))]

    def count(self) -> int:
        """Blocks that can be found."""
        return sum(count for _, count in self.live_bytes().values())

    def close(self) -> None:
        """Let go of the files."""
        with self._lock, self._read_lock, _translated():
            self._reader.close()
            self._db.close()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._read_lock, _translated():
            yield self._reader

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(_DAMAGED) or not isinstance(error, sqlite3.OperationalError):
            raise IndexDamagedError(str(error)) from error
        raise IndexFailedError(str(error)) from error
    except (UnicodeError, OverflowError) as error:  # what a damaged file makes of values and of messages
        raise IndexDamagedError(str(error)) from error


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    # A commit is not flushed to the disk, only ordered: what a power failure takes is cache.
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    # The log counts against the tier's budget, so it is folded into the index early and cut then.
    db.execute("PRAGMA wal_autocheckpoint = 64")
    db.execute("PRAGMA journal_size_limit = 0")
    db.execute("PRAGMA trusted_schema = OFF")
    return db


def _prepare(db: sqlite3.Connection) -> bool:
    """Make the tables where there are none."""
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found == FORMAT:
        # Keys out of order would hide records that are there. A second for a million blocks, once at a start.
        (state,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        if state != "ok":
            raise IndexDamagedError(str(state))
        return False
    if db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
        raise IndexDamagedError(f"format {found}, not {FORMAT}")
    db.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {FORMAT}; COMMIT;")
    return True


def _identity(db: sqlite3.Connection, digest: bytes) -> int:
    db.execute("INSERT OR IGNORE INTO identities(digest) VALUES (?)", (digest,))
    return int(db.execute("SELECT id FROM identities WHERE digest = ?", (digest,)).fetchone()[0])


def _put_segments(db: sqlite3.Connection, segments: Iterable[SegmentRow]) -> None:
    db.executemany("INSERT OR REPLACE INTO segments VALUES (?, ?, ?)", segments)
