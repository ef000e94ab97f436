"""One pass over the ledger, chunk by chunk; then everything is worked out from sums and a few bytes a row."""

from collections.abc import Sequence

from gateway.ledger import LedgerReader, Window
from gateway.ledger.scrapes import Scrape
from gateway.reports.audit.causes import LostReuseCauses
from gateway.reports.audit.figures import Figures
from gateway.reports.audit.groups import GroupIndex
from gateway.reports.audit.invariants import broken_invariants
from gateway.reports.audit.report import AuditReport, GroupFigures, TokenBin
from gateway.reports.audit.taken import Taken
from gateway.reports.errors import ReportError
from gateway.reports.reconcile import Reconciler, differences
from gateway.reports.rows.facts import KEYS, NAMES, facts_of

_BINS = 120  # in a plot


def audit(
    reader: LedgerReader,
    by: Sequence[str] = (),
    since: float | None = None,
    *,
    until: float,
    scrapes: Sequence[Scrape] = (),
) -> AuditReport:
    """Report on the requests that arrived from `since` on and before `until`, seconds since the epoch.

    `scrapes` are the engines' own counters within that window; without them nothing is reconciled.
    Memory: some 20 bytes a row beside one chunk.

    Raises:
        ReportError: `by` names no column.
        LedgerError: the ledger cannot be read.
    """
    for name in by:
        if name not in KEYS:
            raise ReportError(f"--by takes {', '.join(KEYS)}, and not {name!r:.40}")
    index, taken, causes, reconciler = GroupIndex(KEYS), Taken(), LostReuseCauses(), Reconciler(scrapes)
    for chunk in reader.columns(NAMES, Window(since, until)):
        facts = facts_of(chunk)
        taken.add(facts, index.places(chunk), len(index.keys))
        causes.add(chunk, facts)
        reconciler.add(chunk, facts)
    seconds = taken.span if since is None else max(0.0, until - since)
    figures = Figures(index.keys, taken.sums, taken.rows(), seconds)
    columns = tuple(dict.fromkeys(by))
    bins = taken.bins.rows(_BINS)
    reconciled = reconciler.results()
    return AuditReport(
        since=since,
        until=until,
        seconds=seconds,
        by=columns,
        total=figures.of_groups(())[0],
        groups=tuple(sorted(figures.of_groups(columns), key=_order) if by else ()),
        causes=tuple(causes.dearest()),
        findings=(
            *broken_invariants(index.keys, taken.sums),
            *(finding for each in reconciled for finding in differences(each)),
        ),
        reconciled=tuple(reconciled),
        bins=tuple(TokenBin(begin, int(reused), int(computed)) for begin, reused, computed in bins),
        bin_s=taken.bins.width,
    )


def _order(group: GroupFigures) -> tuple[int, list[str]]:
    return -group.requests, [text or "" for text in group.key.values()]
