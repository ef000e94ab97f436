"""One row a request: what was reused, who said so, and what is not known."""

from gateway.ledger.columns import NUMBERS, TEXTS, Columns
from gateway.ledger.database import Database
from gateway.ledger.errors import (
    LedgerConfigError,
    LedgerError,
    LedgerSchemaError,
    LedgerUnavailableError,
)
from gateway.ledger.opening import open_database, open_reader, open_writer
from gateway.ledger.reader import LedgerReader
from gateway.ledger.row import Divergence, GapCause, LedgerRow
from gateway.ledger.sink import LedgerSink, NoLedger
from gateway.ledger.window import Where, Window
from gateway.ledger.writer import LedgerWriter, WriterCounts, WriterSettings

__all__ = [
    "NUMBERS",
    "TEXTS",
    "Columns",
    "Database",
    "Divergence",
    "GapCause",
    "LedgerConfigError",
    "LedgerError",
    "LedgerReader",
    "LedgerRow",
    "LedgerSchemaError",
    "LedgerSink",
    "LedgerUnavailableError",
    "LedgerWriter",
    "NoLedger",
    "Where",
    "Window",
    "WriterCounts",
    "WriterSettings",
    "open_database",
    "open_reader",
    "open_writer",
]
