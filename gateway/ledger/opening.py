"""A ledger to write to, or to read, from what an operator set."""

import logging
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from gateway.ledger.database import Database, reason
from gateway.ledger.errors import LedgerConfigError, LedgerSchemaError, LedgerUnavailableError
from gateway.ledger.place import ledger_url
from gateway.ledger.reader import LedgerReader
from gateway.ledger.retention import Retention
from gateway.ledger.writer import LedgerWriter, WriterSettings

log = logging.getLogger("kvgate.ledger")


def open_writer(
    stated: str | None,
    environ: Mapping[str, str],
    *,
    keep_s: float | None = None,
    settings: WriterSettings | None = None,
) -> LedgerWriter | None:
    """A writer that runs; None: the ledger is off. A server that is away is waited for, a file must be there now.

    A file that a newer kvgate has changed is tried again, too: traffic goes on, and rows are lost loudly.

    Args:
        stated: as for `ledger_url`.
        keep_s: rows older than this many seconds are deleted now and then; None: never.

    Raises:
        LedgerError: the ledger cannot be used as it is set.
    """
    url = ledger_url(stated, environ)
    if url is None:
        return None
    database = Database(url)
    if url.drivername == "sqlite":
        try:
            _prepare(database)
        except LedgerSchemaError as error:
            log.error(  # noqa: TRY400  a trace says nothing more
                "THE LEDGER TAKES NO ROWS: requests go on, their rows wait and are dropped in the end",
                extra={"fields": {"database": str(url), "reason": str(error)}},
            )
    return LedgerWriter(database, settings, None if keep_s is None else Retention(keep_s)).start()


def open_database(stated: str | None, environ: Mapping[str, str]) -> Database:
    """A ledger that is there, for reports and for what an operator does to it.

    Raises:
        LedgerError: it is off, not there, or cannot be used.
    """
    url = ledger_url(stated, environ)
    if url is None:
        raise LedgerConfigError("the ledger is off: name one with --ledger")
    if url.drivername == "sqlite" and not Path(str(url.database)).exists():
        raise LedgerConfigError(
            f"there is no ledger in {url.database}: no gateway has written one yet, or it has another --ledger"
        )
    database = Database(url)
    _prepare(database)
    return database


def open_reader(stated: str | None, environ: Mapping[str, str]) -> LedgerReader:
    """A reader of a ledger that is there. Raises LedgerError, as `open_database`."""
    return LedgerReader(open_database(stated, environ))


def _prepare(database: Database) -> None:
    try:
        database.prepare()
    except LedgerSchemaError:
        database.close()
        raise
    except SQLAlchemyError as error:
        database.close()
        raise LedgerUnavailableError(f"the ledger {database.url} cannot be used: {reason(error)}") from error
