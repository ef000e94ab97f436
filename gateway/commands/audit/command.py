"""The command itself: reads the ledger, prints one of the reports, and says by its exit code if figures are wrong.

Heavy modules are imported when needed.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import orjson

from gateway.ledger import LedgerError, LedgerReader, Window, open_database
from gateway.ledger.retention import seconds
from gateway.ledger.scrapes import ScrapeStore
from gateway.reports.audit import AuditReport, Money, audit
from gateway.reports.errors import ReportError

Format = Literal["table", "json", "html"]

FINE, WRONG, UNUSABLE = 0, 1, 2  # exit codes


def run(
    ledger: str | None,
    environ: Mapping[str, str],
    since: str | None,
    by: Sequence[str],
    form: Format,
    now: float,
    prices: Path | None = None,
) -> int:
    """Audit and print; the exit code. `now`: seconds since the epoch, where the window ends."""
    try:
        begin = None if since is None else now - seconds(since)
        database = open_database(ledger, environ)
        scrapes = ScrapeStore(database).between(begin, now)
        reader = LedgerReader(database)
        report = audit(reader, by, begin, until=now, scrapes=scrapes)
        if prices is not None:
            report = replace(report, money=_money(reader, prices, Window(begin, now)))
    except (LedgerError, ReportError) as error:
        print(f"kvgate audit: {error}", file=sys.stderr)
        return UNUSABLE
    _print(report, form)
    wrong = sum(finding.severity == "wrong" for finding in report.findings)
    if wrong:
        print(f"kvgate audit: {wrong} findings say that figures cannot be true.", file=sys.stderr)
    return WRONG if wrong else FINE


def _money(reader: LedgerReader, path: Path, window: Window) -> Money:
    from gateway.ledger.prices import PriceTable, bills

    table = PriceTable.load(path)
    return Money(table.currency, bills(reader, table, window))


def _print(report: AuditReport, form: Format) -> None:
    if form == "json":
        # Money is written as text, so that no reader makes a float of it.
        written = orjson.dumps(report.as_json(), default=str, option=orjson.OPT_INDENT_2)
        sys.stdout.write(written.decode() + "\n")
    elif form == "html":
        from gateway.commands.audit.html import as_html

        sys.stdout.write(as_html(report))
    else:
        from rich.console import Console

        from gateway.commands.audit.terminal import print_audit

        print_audit(report, Console(file=sys.stdout, width=None if sys.stdout.isatty() else 118))
