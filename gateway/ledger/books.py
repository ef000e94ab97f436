"""All that the request path keeps of requests, opened and closed as one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from gateway.ledger.capture import BodyCapture, CaptureSettings
from gateway.ledger.database import Database, reason
from gateway.ledger.errors import LedgerUnavailableError
from gateway.ledger.expectation import Predictor
from gateway.ledger.opening import open_writer
from gateway.ledger.place import ledger_url
from gateway.ledger.retention import seconds
from gateway.ledger.scrapes import ScrapeStore
from gateway.ledger.shadow import ShadowPredictor
from gateway.ledger.sink import NO_LEDGER, LedgerSink
from gateway.ledger.writer import WriterSettings

_FORGET_S = 45  # for rows that wait, and then for a disk whose flushes hold the lock: nobody's request waits meanwhile


class Books(Protocol):
    """Where rows go, and who expects reuse."""

    @property
    def sink(self) -> LedgerSink:
        """Takes a row for every request."""

    @property
    def predictor(self) -> Predictor | None:
        """None: nothing is expected of requests."""

    @property
    def capture(self) -> BodyCapture | None:
        """None: no body is kept."""

    @property
    def scrapes(self) -> ScrapeStore | None:
        """Keeps what engines counted themselves; None: nothing is kept."""

    def forget(self, tenant: str) -> int:
        """Delete all rows of a tenant, those that wait among them; how many were there. Raises LedgerError."""

    def close(self) -> None:
        """Write what waits. Rows from now on are lost."""


@dataclass(frozen=True, slots=True)
class NoBooks:
    """Keeps nothing."""

    sink: LedgerSink = NO_LEDGER
    predictor: Predictor | None = None
    capture: BodyCapture | None = None
    scrapes: ScrapeStore | None = None

    def forget(self, tenant: str) -> int:
        """There are none."""
        return 0

    def close(self) -> None:
        """Nothing waits."""


NO_BOOKS = NoBooks()


class LedgerBooks:
    """A ledger with the shadow index beside it, and bodies where an operator asks for them."""

    def __init__(
        self,
        stated: str | None,
        environ: Mapping[str, str],
        keep: str | None = None,
        capture: CaptureSettings | None = None,
        *,
        leads: bool = True,
        writing: WriterSettings | None = None,
    ) -> None:
        """As `open_writer` has it; `keep` is a span of time such as `30d`, which counts where this process `leads`.

        Raises LedgerError.
        """
        self.capture = None if capture is None else BodyCapture(capture).start()
        keep_s = None if keep is None or not leads else seconds(keep)
        self._writer = open_writer(stated, environ, keep_s=keep_s, settings=writing)
        self.sink: LedgerSink = self._writer or NO_LEDGER
        self.predictor: Predictor | None = None if self._writer is None else ShadowPredictor()
        self._url = url = ledger_url(stated, environ)
        self.scrapes = None if url is None else ScrapeStore(Database(url))

    def forget(self, tenant: str) -> int:
        """Delete all rows of a tenant, those that wait among them; how many were there.

        Raises:
            LedgerUnavailableError: the database cannot be used now.
        """
        if self._url is None or self._writer is None:
            return 0
        self._writer.settle(_FORGET_S)  # so that they are counted; what still waits then stays out
        database = Database(self._url, lock_s=_FORGET_S)
        try:
            count = sum(database.forget(tenant))
        except SQLAlchemyError as error:
            raise LedgerUnavailableError(f"the ledger cannot be used: {reason(error)}") from error
        finally:
            database.close()
        return count

    def close(self) -> None:
        """Write what waits. Rows from now on are lost."""
        if self._writer is not None:
            self._writer.close()
        if self.capture is not None:
            self.capture.close()
        if self.scrapes is not None:
            self.scrapes.close()
