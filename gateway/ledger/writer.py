"""Rows on their way from the event loop to the database: one append here, batches on a thread of their own."""

import logging
import struct
import threading
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from gateway.ledger.database import Batch, Database, reason
from gateway.ledger.encoding import Encoded, encoded
from gateway.ledger.errors import LedgerError
from gateway.ledger.retention import Retention
from gateway.ledger.row import LedgerRow
from gateway.ledger.sink import LedgerSink

log = logging.getLogger("kvgate.ledger")

_NOT_OF_A_DATABASE = (
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    struct.error,
)  # a row that was made wrong


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Bounds and periods, in rows and seconds."""

    queue_rows: int = 65_536  # that wait while the database does not take them: some 60 MB; more are dropped
    batch_rows: int = 500
    interval_s: float = 0.5  # a row waits no longer for its batch, so that a kill loses less than a second
    first_retry_s: float = 0.1
    last_retry_s: float = 5.0


@dataclass(frozen=True, slots=True)
class WriterCounts:
    """What became of rows so far."""

    written: int = 0
    dropped: int = 0  # the queue was full, or the process ended before the database took them
    rejected: int = 0  # the database would not have this very row
    forgotten: int = 0  # of a tenant that was purged since they arrived
    retries: int = 0  # batches that were tried again
    pruned: int = 0  # old rows that retention deleted
    waiting: int = 0
    failing: str | None = None  # the kind of the error while the database takes nothing; None: it does


class LedgerWriter(LedgerSink):
    """Writes batches into one database, each exactly once however often it must be tried.

    Args:
        database: used from the writer's thread alone.
        retention: what deletes old rows now and then; None: they stay.
    """

    def __init__(
        self,
        database: Database,
        settings: WriterSettings | None = None,
        retention: Retention | None = None,
    ) -> None:
        self._database = database
        self._settings = settings or WriterSettings()
        self._retention = retention
        self._queue: deque[LedgerRow] = deque()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._deadline = float("inf")  # seconds of the monotonic clock
        self._id = uuid.uuid4().hex
        self._number = 0
        self._dropped = self._written = self._rejected = self._retries = self._pruned = self._in_hand = 0
        self._forgotten = 0
        self._ended = 0  # rows that are in the database, or were given up
        self._failing: str | None = None
        self._shedding = False  # since the queue was full, until rows are written again
        self._limit = self._settings.queue_rows
        self._batch = self._settings.batch_rows
        self._thread = threading.Thread(target=self._run, name="kvgate-ledger", daemon=True)

    def start(self) -> "LedgerWriter":
        """Begin to write."""
        self._thread.start()
        return self

    def put(self, row: LedgerRow) -> None:
        """Queue one row; what does not fit is dropped and counted. Takes no lock and never waits."""
        queue = self._queue
        if len(queue) >= self._limit or self._closing.is_set():
            self._drop()
            return
        queue.append(row)
        if len(queue) == self._batch:
            self._wake.set()

    def settle(self, wait_s: float) -> bool:
        """Wait until every row put so far is written, for so long at most; whether it is. Others may come behind."""
        deadline = time.monotonic() + wait_s
        waiting = len(self._queue)
        last = waiting + self._in_hand + self._ended  # in this order: rows go that way, and none is missed
        while (self._queue or self._in_hand) and self._ended < last:
            if time.monotonic() > deadline or self._closing.is_set():
                return False
            self._wake.set()
            time.sleep(0.01)
        return True

    def _drop(self) -> None:
        self._dropped += 1
        if not self._shedding and not self._closing.is_set():
            self._shedding = True
            fields = {"rows_waiting": len(self._queue), "reason": self._failing or "it is too slow"}
            log.error("THE LEDGER DROPS ROWS: requests go on, their rows are lost", extra={"fields": fields})

    def close(self, wait_s: float = 10.0) -> int:
        """Write what waits, for so long at most; how many rows were given up. Rows put from now on are dropped."""
        self._deadline = time.monotonic() + wait_s
        self._closing.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(wait_s + 5.0)  # a statement that runs is waited for, within bounds of its own
        lost = len(self._queue) + self._in_hand
        if lost:
            self._dropped += lost
            self._queue.clear()
            self._in_hand = 0
            log.error(
                "the ledger lost rows at the end", extra={"fields": {"rows": lost, "reason": self._failing}}
            )
        self._database.close()
        return lost

    def counts(self) -> WriterCounts:
        """What became of rows so far; may be called from any thread."""
        waiting = len(self._queue) + self._in_hand
        return WriterCounts(
            self._written,
            self._dropped,
            self._rejected,
            self._forgotten,
            self._retries,
            self._pruned,
            waiting,
            self._failing,
        )

    def _run(self) -> None:
        while True:
            self._wake.wait(self._settings.interval_s)
            self._wake.clear()
            closing = self._closing.is_set()  # before the queue is emptied: nothing is put behind it
            try:
                self._drain()
                if closing:
                    return
                self._prune()
            except Exception:
                # Nobody foresaw it; the rows in hand are gone, and those behind them must not be.
                self._dropped += self._in_hand
                self._ended += self._in_hand
                self._in_hand = 0
                log.exception("the ledger's writer failed, and goes on")

    def _drain(self) -> None:
        queue = self._queue
        while queue:
            # Said before they leave the queue, and until they count as ended, so that `settle` misses none.
            self._in_hand = min(len(queue), self._batch)
            rows = [queue.popleft() for _ in range(self._in_hand)]
            if not self._write(self._encode(rows)):
                return
            self._ended += len(rows)
            self._in_hand = 0

    def _encode(self, rows: Sequence[LedgerRow]) -> list[Encoded]:
        batch = []
        for row in rows:
            try:
                batch.append(encoded(row))
            except _NOT_OF_A_DATABASE as error:
                self._reject(error)
        return batch

    def _write(self, rows: Sequence[Encoded]) -> bool:
        """Put rows in, trying again until it works; False: time is up, and they are not in."""
        if not rows:
            return True
        self._number += 1
        batch, pause = Batch(self._id, self._number, rows), self._settings.first_retry_s
        while True:
            try:
                forgotten = self._database.write(batch)
            except (DataError, IntegrityError) as error:
                return self._write_parts(rows, error)
            except (SQLAlchemyError, LedgerError, OSError) as error:
                self._failed(error)
            else:
                self._written += len(rows) - forgotten
                self._forgotten += forgotten
                self._works()
                return True
            if not self._wait(pause):
                return False
            self._retries += 1
            pause = min(2 * pause, self._settings.last_retry_s)

    def _write_parts(self, rows: Sequence[Encoded], error: Exception) -> bool:
        """One of these rows is at fault: find it, and keep the others."""
        if len(rows) == 1:
            self._reject(error)
            return True
        half = len(rows) // 2
        return self._write(rows[:half]) and self._write(rows[half:])

    def _reject(self, error: Exception) -> None:
        self._rejected += 1
        if self._rejected == 1:
            log.error("a row cannot be kept", extra={"fields": {"error": type(error).__name__}})

    def _wait(self, seconds: float) -> bool:
        """Wait before the next try; False: the process ends, and its time is up."""
        if not self._closing.wait(seconds):
            return True
        left = self._deadline - time.monotonic()
        if left > 0:
            time.sleep(min(seconds, left))
        return left > 0

    def _failed(self, error: Exception) -> None:
        kind = type(getattr(error, "orig", None) or error).__name__
        if self._failing is None:
            fields = {"database": str(self._database.url), "error": kind, "reason": reason(error)}
            log.error("the ledger cannot be written; rows wait", extra={"fields": fields})
        self._failing = kind
        self._database.close()  # a connection that failed is not used again

    def _works(self) -> None:
        if self._failing is not None or self._shedding:
            log.warning("the ledger is written again", extra={"fields": {"dropped": self._dropped}})
        self._failing, self._shedding = None, False

    def _prune(self) -> None:
        if self._retention is None:
            return
        try:
            for count in self._retention.due(self._database):
                self._pruned += count
                self._drain()
                if self._closing.is_set():
                    return
        except (SQLAlchemyError, LedgerError, OSError) as error:
            self._failed(error)
