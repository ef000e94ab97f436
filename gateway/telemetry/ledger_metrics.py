"""What becomes of the ledger's rows, as metric families."""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gateway.ledger.sink import LedgerSink

if TYPE_CHECKING:  # the writer brings a database with it
    from gateway.ledger.writer import WriterCounts


@runtime_checkable
class CountsRows(Protocol):
    """A sink that says what became of its rows."""

    def counts(self) -> "WriterCounts":
        """So far; from any thread."""


def ledger_families(ledger: LedgerSink) -> list[Metric]:
    """Empty where no ledger is kept."""
    if not isinstance(ledger, CountsRows):
        return []
    counts = ledger.counts()
    rows = CounterMetricFamily(
        "kvgate_ledger_rows", "Rows by what became of them; dropped ones are lost.", labels=("fate",)
    )
    for fate in ("written", "dropped", "rejected", "forgotten", "pruned"):
        rows.add_metric([fate], getattr(counts, fate))
    return [
        rows,
        CounterMetricFamily(
            "kvgate_ledger_batch_retries", "Batches that were tried again.", value=counts.retries
        ),
        GaugeMetricFamily(
            "kvgate_ledger_rows_waiting", "Rows that are not written yet.", value=counts.waiting
        ),
        GaugeMetricFamily(
            "kvgate_ledger_failing", "1: the database takes nothing now.", value=float(bool(counts.failing))
        ),
    ]
