"""What engines counted themselves, kept beside what requests reported."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import insert, select
from sqlalchemy.exc import SQLAlchemyError

from gateway.ledger.database import Database, reason
from gateway.ledger.errors import LedgerUnavailableError
from gateway.ledger.schema import scrapes


@dataclass(frozen=True, slots=True)
class Scrape:
    """Prompt tokens since an engine's start. None: it does not count that."""

    engine: str  # its name
    at: float  # seconds since the epoch, UTC
    prompt: int | None
    reused: int | None
    recomputed: int | None


class ScrapeStore:
    """Reads and writes scrapes. Every method may wait, so call it off the event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, rows: Sequence[Scrape]) -> None:
        """Keep them; raises LedgerUnavailableError."""
        if not rows:
            return
        try:
            with self._database.engine.begin() as connection:
                connection.execute(insert(scrapes), [asdict(row) for row in rows])
        except SQLAlchemyError as error:
            raise LedgerUnavailableError(f"the ledger takes no scrapes: {reason(error)}") from error

    def between(self, since: float | None, until: float) -> list[Scrape]:
        """Scrapes from `since` on and before `until`, oldest first; raises LedgerUnavailableError."""
        wanted = [scrapes.c[name] for name in Scrape.__slots__]
        query = select(*wanted).where(scrapes.c.at < until).order_by(scrapes.c.at, scrapes.c.seq)
        if since is not None:
            query = query.where(scrapes.c.at >= since)
        try:
            with self._database.engine.connect().execution_options(kvgate_reads=True) as connection:
                return [Scrape(*row) for row in connection.execute(query)]
        except SQLAlchemyError as error:
            raise LedgerUnavailableError(f"the ledger's scrapes cannot be read: {reason(error)}") from error

    def close(self) -> None:
        """Close all connections."""
        self._database.close()
