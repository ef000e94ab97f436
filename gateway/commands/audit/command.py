"""The command itself: reads the ledger, prints one of the reports, and says by its exit code if figures are wrong."""

import sys
from collections.abc import Mapping, Sequence
from typing import Literal

import orjson
from rich.console import Console

from gateway.commands.audit.html import as_html
from gateway.commands.audit.terminal import print_audit
from gateway.ledger import LedgerError, open_reader
from gateway.ledger.retention import seconds
from gateway.reports.audit import AuditReport, audit
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
) -> int:
    """Audit and print; the exit code. `now`: seconds since the epoch, where the window ends."""
    try:
        begin = None if since is None else now - seconds(since)
        report = audit(open_reader(ledger, environ), by, begin, until=now)
    except (LedgerError, ReportError) as error:
        print(f"kvgate audit: {error}", file=sys.stderr)
        return UNUSABLE
    _print(report, form)
    wrong = sum(finding.severity == "wrong" for finding in report.findings)
    if wrong:
        print(f"kvgate audit: {wrong} findings say that figures cannot be true.", file=sys.stderr)
    return WRONG if wrong else FINE


def _print(report: AuditReport, form: Format) -> None:
    if form == "json":
        sys.stdout.write(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2).decode() + "\n")
    elif form == "html":
        sys.stdout.write(as_html(report))
    else:
        print_audit(report, Console(file=sys.stdout, width=None if sys.stdout.isatty() else 118))
