"""Where the request path leaves its rows."""

from typing import Protocol

from gateway.ledger.row import LedgerRow


class LedgerSink(Protocol):
    """Takes rows without waiting and without raising; what does not fit is dropped and counted."""

    def put(self, row: LedgerRow) -> None:
        """Called on the event loop, once a request, when it has ended."""


class NoLedger:
    """Keeps nothing."""

    def put(self, row: LedgerRow) -> None:
        """Forget the row."""


NO_LEDGER = NoLedger()
