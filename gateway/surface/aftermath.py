"""What is done about requests that have ended: a row, an access line, metrics, spans. Many at once, a moment later.

The same few functions over many records take a third of the time that they take between one request and the next,
where each of them finds the processor's caches full of other things.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from gateway.ledger.accounting import row_of
from gateway.ledger.expectation import Predictor
from gateway.ledger.sink import NO_LEDGER, LedgerSink
from gateway.logs import log_all
from gateway.transport.record import RequestRecord

access = logging.getLogger("kvgate.access")

_WAIT_S = 0.02  # by then several have ended under load, and one alone hurries nobody
_AT_ONCE = 32  # records; more of them would hold up a request that waits
_PROBES = frozenset({"/health", "/ready", "/metrics"})


class Aftermath:
    """Takes records of requests that have ended. Used from one event loop.

    `counted` get every record once, those that ended at about the same time together, and raise nothing.
    """

    def __init__(
        self,
        ledger: LedgerSink = NO_LEDGER,
        predictor: Predictor | None = None,
        counted: Sequence[Callable[[Sequence[RequestRecord]], None]] = (),
    ) -> None:
        self._ledger = ledger
        self._predictor = predictor
        self._counted = tuple(counted)
        self._waiting: list[RequestRecord] = []
        self._timer: asyncio.TimerHandle | None = None

    def take(self, record: RequestRecord) -> None:
        """`record` has ended now, and is not changed any more."""
        self._waiting.append(record)
        if len(self._waiting) >= _AT_ONCE:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WAIT_S, self.flush)

    def flush(self) -> None:
        """Do what waits now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        records, self._waiting = self._waiting, []
        for record in records:
            self._put_row(record)
        _tell(records)
        for count in self._counted:
            count(records)

    def _put_row(self, record: RequestRecord) -> None:
        if record.route is not None:
            self._ledger.put(row_of(record, self._predictor))


def _tell(records: Sequence[RequestRecord]) -> None:
    """The access lines."""
    # Probes come every few seconds, day and night: they are not worth a line each.
    for level, probes in ((logging.INFO, False), (logging.DEBUG, True)):
        if access.isEnabledFor(level):
            told = [record.fields() for record in records if (record.path in _PROBES) is probes]
            log_all(access, level, "request", told)
