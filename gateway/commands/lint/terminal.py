"""Lint's report as people read it on a terminal."""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from canon.lint import LintReport
from canon.results import Finding
from gateway.commands.lint.log_files import Logs, Place
from gateway.commands.wording import counted

_SHOWN = 20


def print_report(report: LintReport, logs: Logs, policy: str, console: Console) -> None:
    """A summary, the findings, and the dearest one like a diff."""
    console.print(_summary(report, logs, policy))
    if report.findings:
        console.print(_findings(report.findings))
        console.print(_difference(report.findings[0], logs.places[report.first_seen[0]]))
    else:
        console.print("Nothing found that breaks a prefix.", style="green")
    for hazard in report.template:
        console.print(
            Text(
                f"The model has {hazard.cause}: {hazard.detail}. What ends it: {hazard.fix}.", style="yellow"
            )
        )
    if report.rules:
        console.print(_rules(report))


def _summary(report: LintReport, logs: Logs, policy: str) -> Text:
    text = Text()
    text.append(f"{counted(report.requests, 'request')}, {report.prompt_tokens:,} prompt tokens. ")
    text.append("Reuse rate ")
    text.append(f"{report.reuse_before:.1%}", style="bold red" if report.reuse_before < 0.5 else "bold")
    text.append(" as it is, ")
    text.append(f"{report.reuse_after:.1%}", style="bold green")
    text.append(f" under policy {policy}.")
    for reason, count in logs.skipped.items():
        text.append(f"\n{count:,} of {logs.lines:,} lines left out: {reason}.", style="yellow")
    if report.incomplete:
        text.append(f"\nLower bounds: {report.incomplete}.", style="yellow")
    return text


def _findings(findings: Sequence[Finding]) -> Table:
    table = Table(title="What is computed again, and why", title_justify="left", expand=True)
    table.add_column("tokens lost", justify="right", no_wrap=True)
    table.add_column("requests", justify="right", no_wrap=True)
    table.add_column("cause", ratio=3)
    table.add_column("where", ratio=3, overflow="fold")
    table.add_column("what ends it", ratio=4)
    for finding in findings[:_SHOWN]:
        table.add_row(
            f"{finding.tokens_lost:,}",
            f"{finding.requests:,}",
            Text(finding.cause),
            Text(_where(finding)),
            Text(finding.fix),
        )
    if len(findings) > _SHOWN:
        rest = sum(finding.tokens_lost for finding in findings[_SHOWN:])
        table.add_row(f"{rest:,}", "", f"{len(findings) - _SHOWN} more; --json has them all", "", "")
    return table


def _where(finding: Finding) -> str:
    return finding.path if finding.offset is None else f"{finding.path} at {finding.offset:,}"


def _difference(finding: Finding, place: Place) -> RenderableType:
    before, after = (visible(value) for value in (*finding.values, "", "")[:2])
    lines = Group(
        Text(finding.detail),
        Text(f"- {before}", style="red"),
        Text(f"+ {after}", style="green"),
    )
    return Panel(lines, title=Text(f"{place.log}:{place.line}  {_where(finding)}"), title_align="left")


def visible(value: str) -> str:
    """A value on one line, with what cannot be seen spelled out."""
    shown = value.encode("unicode_escape").decode() if not value.isprintable() and value.isascii() else value
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in shown)
    return shown if shown.strip() else repr(value)


def _rules(report: LintReport) -> Table:
    table = Table(title="Rule by rule", title_justify="left")
    for heading in ("rule", "requests edited", "reuse before", "reuse after", "tokens saved"):
        table.add_column(heading, justify="left" if heading == "rule" else "right")
    for gain in report.rules:
        table.add_row(
            gain.rule,
            f"{gain.requests:,}",
            f"{gain.reuse_before:.1%}",
            f"{gain.reuse_after:.1%}",
            f"{gain.tokens_saved:,}",
        )
    return table
