"""Figures in words, the same on a terminal and on a page. What is not known is a dash, never 0."""

from datetime import UTC, datetime

from gateway.ledger.bill import Bill
from gateway.reports.audit import AuditReport, GroupFigures, LostReuse
from gateway.reports.audit.causes import ESTIMATED, NOT_TOLD
from gateway.reports.reconcile.reconciliation import Reconciliation

UNKNOWN = "-"


def rate(value: float | None) -> str:
    """A share as percent."""
    return UNKNOWN if value is None else f"{value:.1%}"


def tokens(value: float | None) -> str:
    """A count of tokens, short."""
    if value is None:
        return UNKNOWN
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):,.1f} {unit}"
    return f"{value:,.0f}"


def per_second(value: float | None) -> str:
    """Tokens a second."""
    if value is None:
        return UNKNOWN
    return f"{value:.2g}/s" if 0 < value < 10 else f"{tokens(value)}/s"


def milliseconds(seconds: float | None) -> str:
    """A time as milliseconds."""
    if seconds is None:
        return UNKNOWN
    value = seconds * 1000
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def span(seconds: float | None) -> str:
    """A length of time in the unit that suits it."""
    if seconds is None:
        return UNKNOWN
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s"


def name_of(group: GroupFigures) -> str:
    """The texts a group is made of."""
    return " / ".join(text if text is not None else "none" for text in group.key.values())


def what_it_is(cause: LostReuse) -> str:
    """What a cause of lost reuse says."""
    if cause.kind == "gap" and cause.cause == ESTIMATED:
        return "expected to hit, by no more than such an estimate may be wrong"
    if cause.kind == "gap":
        return "expected to hit"
    if cause.cause == NOT_TOLD:
        return "new, or nothing is known of where it left earlier prompts"
    return "left the nearest earlier prompt here"


def window(report: AuditReport) -> str:
    """From when to when, UTC."""
    until = datetime.fromtimestamp(report.until, UTC)
    if report.since is None:
        return f"all until {until:%Y-%m-%d %H:%M:%S} UTC"
    since = datetime.fromtimestamp(report.since, UTC)
    return f"{since:%Y-%m-%d %H:%M:%S} to {until:%Y-%m-%d %H:%M:%S} UTC"


def saved(group: GroupFigures) -> str:
    """The estimate, and how much it covers."""
    if group.prefill_saved_s is None:
        return "not estimated: too few streams to tell what a computed token takes"
    covered = group.estimated_tokens / group.reused if group.reused else 1.0
    part = "" if covered > 0.999 else f" for {covered:.0%} of the reused tokens"
    return (
        f"{span(group.prefill_saved_s)}{part}, estimated: reused tokens times the seconds a computed token adds to "
        "the TTFT of streams of the same engine and model"
    )


RECONCILED = (
    "covered",
    "prompt, requests",
    "engine",
    "reused, requests",
    "engine",
    "not reported",
    "tolerance",
)


def reconciled(found: Reconciliation) -> list[str]:
    """One engine's cells under `RECONCILED`."""
    return [
        span(found.seconds),
        tokens(found.prompt),
        tokens(found.counted_prompt),
        tokens(found.reused),
        tokens(found.counted_reused),
        tokens(found.silent_prompt),
        tokens(found.tolerance),
    ]


BILLED = ("requests", "at least", "at most", "saved by reuse", "without a price")


def billed(bill: Bill) -> list[str]:
    """One tenant's cells under `BILLED`."""
    money = (f"{amount:,.4f}" for amount in (bill.at_least, bill.at_most, bill.saved))
    return [f"{bill.requests:,}", *money, f"{bill.unpriced:,}"]
