"""One ledger database: opening it safely, and the few statements that change it."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, delete, event, select
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, OperationalError, ProgrammingError

from gateway.ledger import purges
from gateway.ledger.encoding import COLUMNS, Encoded
from gateway.ledger.errors import LedgerConfigError
from gateway.ledger.packs import table as packs
from gateway.ledger.place import private_file
from gateway.ledger.preparing import prepare
from gateway.ledger.schema import requests, scrapes, writers

_WAIT_S = 2  # for a lock, or for a server to answer a connection
_STUCK_S = 15  # for one statement on a server
_AT_ONCE = 5_000  # rows one deletion takes, so that nobody waits long for its lock
_PAGES = 2_000  # of a SQLite file that are given back after each

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are in together or not at all, and at most once: a writer's numbers only go up."""

    writer: str
    number: int
    rows: Sequence[Encoded]


class Database:
    """The ledger in SQLite or PostgreSQL. Safe from any thread; every method may wait, none for ever.

    Args:
        lock_s: whole seconds that one statement waits for another one's lock on a SQLite file.

    Raises:
        LedgerConfigError: the place cannot be used, or a package is missing.
    """

    def __init__(self, url: URL, lock_s: int = _WAIT_S) -> None:
        self.url = url
        self._path = Path(str(url.database)).absolute() if url.drivername == "sqlite" else None
        if self._path is not None:
            private_file(self._path)
        self._engine = _engine(url, lock_s)
        self._prepared = False
        self._last: tuple[str, packs.Last | None] = "", None  # by the writer that wrote last
        mark = "?" if self._path is not None else "%s"
        self._insert = f"INSERT INTO requests ({', '.join(map(_quoted, COLUMNS))}) VALUES ({_marks(mark)})"  # noqa: S608
        self._note = (
            f"INSERT INTO writers (id, batch, seen) VALUES ({mark}, {mark}, {mark}) ON CONFLICT (id) "  # noqa: S608
            "DO UPDATE SET batch = excluded.batch, seen = excluded.seen WHERE writers.batch < excluded.batch"
        )

    @property
    def engine(self) -> Engine:
        """For readers."""
        return self._engine

    def prepare(self) -> None:
        """Create the tables where they are missing.

        Raises:
            LedgerSchemaError: a newer kvgate has written here.
            SQLAlchemyError: the database cannot be used now.
        """
        with self._engine.begin() as connection:
            prepare(connection)
        self._prepared = True

    def write(self, batch: Batch) -> int:
        """Put a batch in, or find that it is in already; how many of its rows stayed out, of forgotten tenants.

        Raises as `prepare`, and nothing of it is in then.
        """
        if self._path is not None and not self._path.exists():
            # Somebody removed the file: what is written to the old one would be lost without a sign.
            self.close()
            private_file(self._path)
            self._prepared = False
        if not self._prepared:
            self.prepare()
        writer, last = self._last
        last = last if writer == batch.writer else None
        given = packs.additions(batch.rows, last)
        try:
            with self._engine.begin() as connection:
                noted = connection.exec_driver_sql(self._note, (batch.writer, batch.number, time.time()))
                if not noted.rowcount:
                    return 0
                rows = purges.kept(batch.rows, purges.marks(connection))
                if rows is not batch.rows:
                    given = packs.additions(rows, last)
                if rows:
                    connection.exec_driver_sql(self._insert, list(rows))
                    last = packs.put(connection, given)
        except (OperationalError, ProgrammingError) as error:
            if _other_tables(error):
                self._prepared = False
            raise
        self._last = batch.writer, last
        return len(batch.rows) - len(rows)

    def prune(self, before: float) -> Iterator[int]:
        """Delete rows that arrived before then, some thousands at a time; yields how many it deleted each time."""
        yield from self._delete(requests.c.arrival < before)
        while self._step(lambda connection: packs.delete_before(connection, before)):
            self._give_back()
        self._keep(lambda connection, behind: packs.keep_since(connection, before, behind))
        with self._engine.begin() as connection:
            connection.execute(delete(writers).where(writers.c.seen < before))
            connection.execute(delete(scrapes).where(scrapes.c.at < before))

    def forget(self, tenant: str, at: float | None = None) -> Iterator[int]:
        """Delete all rows of a tenant, as `prune`. What arrived until `at` stays out from then on, whoever has it.

        `at`: seconds since the epoch; None: now.
        """
        if not self._prepared:
            self.prepare()
        with self._engine.begin() as connection:
            purges.mark(connection, tenant, time.time() if at is None else at)
        yield from self._delete(requests.c.tenant == tenant)
        self._keep(lambda connection, behind: packs.keep_others(connection, tenant, behind))

    def close(self) -> None:
        """Close all connections; using the database opens them again."""
        self._engine.dispose()

    def _delete(self, condition: Any) -> Iterator[int]:
        if not self._prepared:
            self.prepare()
        some = select(requests.c.seq).where(condition).limit(_AT_ONCE)
        while True:
            with self._engine.begin() as connection:
                gone = connection.execute(delete(requests).where(requests.c.seq.in_(some))).rowcount
            if not gone:
                return
            self._give_back()
            yield gone

    def _keep(self, some: Callable[[Connection, int], int | None]) -> None:
        """Go through the packs, some at a time; none of them stays locked for long."""
        behind: int | None = 0
        while behind is not None:
            at = behind
            behind = self._step(lambda connection, at=at: some(connection, at))  # type: ignore[misc]
        self._give_back()

    def _step(self, what: Callable[[Connection], _T]) -> _T:
        with self._engine.begin() as connection:
            return what(connection)

    def _give_back(self) -> None:
        """Pages that are free now leave the file."""
        if self._path is not None:
            # Whoever holds the file now is not waited for: the pages are free for new rows as well.
            with self._engine.connect() as connection, suppress(sqlite3.OperationalError):
                driver = connection.connection.driver_connection
                assert driver is not None
                # As a script: it frees one page a step, and a plain statement is stepped once only.
                driver.executescript(f"PRAGMA incremental_vacuum({_PAGES})")


def check_driver(url: URL) -> None:
    """Raise LedgerConfigError where a package that `url` needs is missing; nothing is connected to."""
    _engine(url).dispose()


def _engine(url: URL, lock_s: int = _WAIT_S) -> Engine:
    try:
        if url.drivername != "sqlite":
            limits = {
                "connect_timeout": _WAIT_S,
                "tcp_user_timeout": _STUCK_S * 1000,
                "options": f"-c statement_timeout={_STUCK_S * 1000} -c timezone=UTC",
                "application_name": "kvgate",
            }
            # Each statement has to see what is there by then: marks of purges, read behind a lock.
            return create_engine(
                url,
                connect_args=limits,
                pool_size=2,
                pool_recycle=3600,
                isolation_level="READ COMMITTED",
            )
        engine = create_engine(url, connect_args={"timeout": lock_s}, pool_size=2)
    except (ImportError, NoSuchModuleError):
        raise LedgerConfigError(
            "a ledger in PostgreSQL needs psycopg: pip install 'kvgate[postgres]'"
        ) from None
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = (
        None  # transactions begin where this file says so, and not where the driver does
    )
    for pragma in (
        "auto_vacuum = INCREMENTAL",  # has an effect only before there is a table
        "journal_mode = WAL",
        "synchronous = FULL",  # one flush a batch, so that a power cut loses no more than a kill does
        "wal_autocheckpoint = 1000",
        "journal_size_limit = 16777216",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    # Takes the lock to write at once: a transaction that begins by reading can fail in its middle instead of waiting.
    mode = "DEFERRED" if connection.get_execution_options().get("kvgate_reads") else "IMMEDIATE"
    connection.exec_driver_sql(f"BEGIN {mode}")


def _other_tables(error: DBAPIError) -> bool:
    """Whether tables are not what they were: the database is another one under its name, or a newer kvgate's."""
    return isinstance(error, ProgrammingError) or str(error.orig).startswith(("no such table", "table "))


def _quoted(name: str) -> str:
    return f'"{name}"'  # `end` is a word of SQL


def _marks(mark: str) -> str:
    return ", ".join([mark] * len(COLUMNS))


def reason(error: Exception) -> str:
    """One line on what a database said, without the statement and its values."""
    said = str(getattr(error, "orig", None) or error).strip().splitlines() or [type(error).__name__]
    return said[0][:200]
