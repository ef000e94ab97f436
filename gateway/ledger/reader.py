"""Reading the ledger: whole rows one by one, or columns as arrays for reports over millions of them."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, func, literal_column, select
from sqlalchemy.exc import SQLAlchemyError

from gateway.ledger.columns import NUMBERS, TEXTS, ColumnReading, Columns
from gateway.ledger.database import Database, reason
from gateway.ledger.encoding import COLUMNS, decoded
from gateway.ledger.errors import LedgerConfigError, LedgerUnavailableError
from gateway.ledger.packs import StoredPack
from gateway.ledger.row import LedgerRow
from gateway.ledger.schema import packs, requests
from gateway.ledger.window import ALL, EVER, Where, Window

_PACKS = 64  # that are read at once: some 65,536 rows, which take some 20 MB
_CHUNK = 65_536  # rows


class LedgerReader:
    """Reads while others write. Holds no lock longer than one chunk takes, so a report keeps nobody waiting."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def rows(self, window: Window = EVER, where: Where = ALL, chunk: int = 2_000) -> Iterator[LedgerRow]:
        """Rows in the order in which they were written. Raises LedgerUnavailableError."""
        wanted = [requests.c[name] for name in COLUMNS]
        for values in self._chunks(wanted, window, where, chunk):
            for each in values:
                yield decoded(each[1:])

    def columns(
        self, names: Sequence[str], window: Window = EVER, where: Where = ALL, chunk: int = _CHUNK
    ) -> Iterator[Columns]:
        """Columns in chunks of so many rows at the most: names of `NUMBERS` and `TEXTS`.

        Raises:
            LedgerConfigError: there is no such column.
            LedgerUnavailableError: the database does not answer, or what it has is broken.
        """
        for name in names:
            if name not in NUMBERS and name not in TEXTS:
                raise LedgerConfigError(f"the ledger has no column {name!r:.40} for reports")
        reading = ColumnReading(names, window, where)
        for values in self._packs(window):
            columns = reading.columns([StoredPack.of(each[1]) for each in values])
            for first in range(0, columns.rows, chunk):
                yield columns.part(first, chunk)

    def _packs(self, window: Window) -> Iterator[Sequence[Any]]:
        """Tuples of `seq` and a pack that has rows of this window, some at a time."""
        conditions: list[ColumnElement[bool]] = []
        if window.since is not None:
            conditions.append(packs.c.last_arrival >= window.since)
        if window.until is not None:
            conditions.append(packs.c.first_arrival < window.until)
        last = self._read(select(func.max(packs.c.seq)))[0][0]
        if last is None:
            return
        query = select(packs.c.seq, packs.c.packed).where(packs.c.seq <= last, *conditions)
        query = query.order_by(packs.c.seq).limit(_PACKS)
        at = 0
        while at < last:
            found = self._read(query.where(packs.c.seq > at))
            if not found:
                return
            at = found[-1][0]
            yield found

    def _chunks(
        self, wanted: Sequence[ColumnElement[Any]], window: Window, where: Where, size: int
    ) -> Iterator[Sequence[Any]]:
        """Tuples of `seq` and what is wanted."""
        first, last = self._bounds(window)
        if first is None or last is None:
            return
        query = select(requests.c.seq, *wanted).where(requests.c.seq <= last, *_conditions(window, where))
        query = query.order_by(requests.c.seq).limit(size)
        at = first - 1
        while at < last:
            found = self._read(query.where(requests.c.seq > at))
            if not found:
                return
            at = found[-1][0]
            yield found

    def _bounds(self, window: Window) -> tuple[int | None, int | None]:
        """The first and the last row of the window by number, so that chunks follow the table and not an index."""
        inside = _inside(requests.c.arrival, window)
        found = self._read(select(func.min(requests.c.seq), func.max(requests.c.seq)).where(*inside))
        return found[0][0], found[0][1]

    def _read(self, query: Select[Any]) -> Sequence[Any]:
        """All rows of a query as the driver's own tuples, which takes half the time."""
        try:
            with self._database.engine.connect().execution_options(kvgate_reads=True) as connection:
                cursor = connection.execute(query).cursor
                assert cursor is not None, "a query has a cursor"
                return cursor.fetchall()
        except SQLAlchemyError as error:
            raise LedgerUnavailableError(f"the ledger cannot be read: {reason(error)}") from error


def _conditions(window: Window, where: Where) -> Iterator[ColumnElement[bool]]:
    # The plus keeps SQLite from taking the index, and with it rows in another order.
    yield from _inside(literal_column("+arrival"), window)
    for name in ("tenant", "model", "engine", "route"):
        value = getattr(where, name)
        if value is not None:
            yield requests.c[name] == value


def _inside(arrival: ColumnElement[Any], window: Window) -> Iterator[ColumnElement[bool]]:
    if window.since is not None:
        yield arrival >= window.since
    if window.until is not None:
        yield arrival < window.until
