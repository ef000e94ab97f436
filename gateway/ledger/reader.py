"""Reading the ledger: whole rows one by one, or columns as arrays for reports over millions of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Select, func, literal_column, select
from sqlalchemy.exc import SQLAlchemyError

from gateway.ledger.database import Database, reason
from gateway.ledger.encoding import (
    COLUMNS,
    NO_COUNT,
    PACKED,
    PACKED_COUNTS,
    PACKED_TEXTS,
    STATUSES,
    decoded,
)
from gateway.ledger.errors import LedgerConfigError, LedgerUnavailableError
from gateway.ledger.row import LedgerRow
from gateway.ledger.schema import requests

NUMBERS: tuple[str, ...] = (
    "arrival", "ttft", "duration", "status", "stream", *PACKED_COUNTS, "recomputed",
)  # fmt: skip
TEXTS: tuple[str, ...] = (*PACKED_TEXTS, "reuse_status")

_CHUNK = 65_536  # rows: some 20 MB while they are read


@dataclass(frozen=True, slots=True)
class Window:
    """Rows that arrived at `since` or later and before `until`, seconds since the epoch; None: without a bound."""

    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Where:
    """Only rows with these values; None: all."""

    tenant: str | None = None
    model: str | None = None
    engine: str | None = None
    route: str | None = None


EVER = Window()
ALL = Where()


@dataclass(frozen=True, slots=True)
class Columns:
    """One chunk of rows, in the order in which they were written. All arrays have shape [rows].

    Attributes:
        numbers: float64; NaN is `not known`. Tokens are whole numbers. `ttft` and `duration` are seconds from the
            arrival (of a precision of 7 digits), `stream` is 0 or 1.
        codes: int32 indices into `labels[name]`; -1 is None.
        labels: the texts behind the codes, the same lists in every chunk of one reading; they grow.
    """

    rows: int
    numbers: dict[str, NDArray[np.float64]]
    codes: dict[str, NDArray[np.int32]]
    labels: dict[str, list[str]]


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
        """Columns in chunks: names of `NUMBERS` and `TEXTS`.

        Raises:
            LedgerConfigError: there is no such column.
            LedgerUnavailableError: the database does not answer.
        """
        for name in names:
            if name not in NUMBERS and name not in TEXTS:
                raise LedgerConfigError(f"the ledger has no column {name!r:.40} for reports")
        numbers = [name for name in names if name in NUMBERS]
        labels = {name: _Labels() for name in names if name in TEXTS}
        for values in self._chunks([requests.c.packed], window, where, chunk):
            packed = np.frombuffer(b"".join([each[1] for each in values]), PACKED)
            yield Columns(
                len(packed),
                {name: _numbers(packed, name) for name in numbers},
                {name: self._codes(packed, name, its, values) for name, its in labels.items()},
                {name: its.texts for name, its in labels.items()},
            )

    def _codes(
        self, packed: NDArray[np.void], name: str, labels: "_Labels", values: Sequence[Any]
    ) -> NDArray[np.int32]:
        if name == "reuse_status":
            labels.texts[:] = STATUSES
            return packed[name].astype(np.int32)
        return labels.codes(packed[name], lambda place: self._text(name, values[place][0]))

    def _text(self, name: str, seq: int) -> str | None:
        """What a column says in one row; None: it was deleted since."""
        found = self._read(select(requests.c[name]).where(requests.c.seq == seq))
        return found[0][0] if found else None

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


def _numbers(packed: NDArray[np.void], name: str) -> NDArray[np.float64]:
    if name == "recomputed":
        recomputed = _numbers(packed, "prompt") - _numbers(packed, "reused")
        recomputed[packed["reuse_status"] == STATUSES.index("inconsistent")] = np.nan
        return recomputed
    values = packed[name].astype(np.float64)
    if name in PACKED_COUNTS:
        values[values == NO_COUNT] = np.nan
    return values


@dataclass(slots=True)
class _Labels:
    """Texts of one column by the codes that the database has for them."""

    texts: list[str] = field(default_factory=list)
    _known: dict[int, int] = field(default_factory=lambda: {0: -1})

    def codes(self, stored: NDArray[np.int64], text_at: Callable[[int], str | None]) -> NDArray[np.int32]:
        """Places in `texts`; `text_at` tells the text of a row of this chunk."""
        found, first, inverse = np.unique(stored, return_index=True, return_inverse=True)
        places = [self._place(int(code), int(at), text_at) for code, at in zip(found, first, strict=True)]
        return np.array(places, np.int32)[inverse]

    def _place(self, code: int, at: int, text_at: Callable[[int], str | None]) -> int:
        if code not in self._known:
            text = text_at(at)
            if text is None:
                return -1
            self._known[code] = len(self.texts)
            self.texts.append(text)
        return self._known[code]
