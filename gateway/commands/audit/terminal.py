"""The audit as people read it on a terminal."""

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gateway.commands.audit import words
from gateway.commands.wording import counted
from gateway.reports.audit import AuditReport, GroupFigures, Money, Percentiles
from gateway.reports.findings import ReportFinding

_SHOWN = 12  # causes, groups
_STYLES = {"warm": "green", "cold": "red", "inconsistent": "bold red", "not reported": "yellow"}
_BLOCKS = "▁▂▃▄▅▆▇█"


def print_audit(report: AuditReport, console: Console) -> None:
    """The summary, classes, groups, lost reuse and findings."""
    console.print(_summary(report))
    console.print(_classes(report.total))
    if report.groups:
        console.print(_groups(report))
    if report.causes:
        console.print(_causes(report))
    if report.reconciled:
        console.print(_reconciled(report))
    if report.money is not None:
        console.print(_money(report.money))
    for finding in report.findings:
        console.print(_finding(finding))


def _summary(report: AuditReport) -> Panel:
    total = report.total
    text = Text()
    text.append("reuse rate ")
    text.append(words.rate(total.reuse_rate), style="bold")
    text.append(f"   reused {words.tokens(total.reused)} tokens ({words.per_second(total.reused_per_s)})")
    text.append(
        f"   recomputed {words.tokens(total.recomputed)} ({words.per_second(total.recomputed_per_s)})"
    )
    text.append(f"\nreused by tier: {_tiers(total)}")
    text.append(f"\nprefill saved: {words.saved(total)}")
    if bars := _bars(report):
        text.append(f"\nreuse rate over time  {bars}", style="cyan")
    title = f"{counted(total.requests, 'request')}, {words.window(report)}"
    return Panel(text, title=title, title_align="left")


def _tiers(group: GroupFigures) -> str:
    parts = [f"{tier} {words.tokens(count)}" for tier, count in group.tiers.items()]
    if group.untold_tier:
        parts.append(f"not told {words.tokens(group.untold_tier)}")
    return ", ".join(parts) or words.UNKNOWN


def _bars(report: AuditReport, width: int = 48) -> str:
    """One block a span of time, as high as the reuse rate; a dot where there were no tokens."""
    each = max(1, -(-len(report.bins) // width))
    shown = []
    for at in range(0, len(report.bins), each):
        some = report.bins[at : at + each]
        reused, all_tokens = sum(b.reused for b in some), sum(b.reused + b.recomputed for b in some)
        shown.append(_BLOCKS[round(reused / all_tokens * 7)] if all_tokens else "·")
    return "".join(shown) if len(shown) > 1 else ""


def _classes(group: GroupFigures) -> Table:
    table = Table(title="By class; times of streams in ms", title_justify="left")
    table.add_column("class")
    for heading in (
        "requests",
        "share",
        "prompt",
        "reused",
        "TTFT p50",
        "p90",
        "p99",
        "TPOT p50",
        "p90",
        "p99",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, its in group.classes.items():
        told = name not in ("not reported", "inconsistent", "failed")
        table.add_row(
            Text(name, style=_STYLES.get(name, "") if its.requests else "dim"),
            f"{its.requests:,}",
            words.rate(its.requests / group.requests if group.requests else None),
            words.tokens(its.prompt),
            words.tokens(its.reused) if told else words.UNKNOWN,
            *_times(its.ttft),
            *_times(its.tpot),
        )
    return table


def _times(found: Percentiles | None) -> tuple[str, str, str]:
    if found is None:
        return (words.UNKNOWN,) * 3
    return words.milliseconds(found.p50), words.milliseconds(found.p90), words.milliseconds(found.p99)


def _groups(report: AuditReport) -> Table:
    table = Table(title=f"By {', '.join(report.by)}; TTFT of streams in ms, p50", title_justify="left")
    table.add_column(" / ".join(report.by), overflow="fold")
    headings = (
        "requests",
        "reuse rate",
        "reused",
        "recomputed",
        "cold",
        "warm",
        "not rep.",
        "TTFT cold",
        "warm",
    )
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for group in report.groups[:_SHOWN]:
        cold, warm, silent = (group.classes[name] for name in ("cold", "warm", "not reported"))
        table.add_row(
            Text(words.name_of(group)),
            f"{group.requests:,}",
            words.rate(group.reuse_rate),
            words.tokens(group.reused),
            words.tokens(group.recomputed),
            f"{cold.requests:,}",
            f"{warm.requests:,}",
            f"{silent.requests:,}",
            _times(cold.ttft)[0],
            _times(warm.ttft)[0],
        )
    if len(report.groups) > _SHOWN:
        table.caption = f"{len(report.groups) - _SHOWN} more; --json has them all"
    return table


def _causes(report: AuditReport) -> Table:
    table = Table(title="Why tokens that could be reused were computed", title_justify="left")
    table.add_column("tokens", justify="right")
    table.add_column("requests", justify="right")
    table.add_column("cause")
    table.add_column("what it is")
    for cause in report.causes[:_SHOWN]:
        what = words.what_it_is(cause)
        table.add_row(words.tokens(cause.tokens), f"{cause.requests:,}", Text(cause.cause), what)
    return table


def _reconciled(report: AuditReport) -> Table:
    table = Table(title="Requests against the engine's own counters", title_justify="left")
    table.add_column("engine")
    for heading in words.RECONCILED:
        table.add_column(heading, justify="right", no_wrap=True)
    for each in report.reconciled:
        table.add_row(Text(each.engine), *words.reconciled(each))
    return table


def _money(money: Money) -> Table:
    table = Table(title=f"Money by tenant, {money.currency}", title_justify="left")
    table.add_column("tenant")
    for heading in words.BILLED:
        table.add_column(heading, justify="right", no_wrap=True)
    for tenant, bill in money.bills.items():
        table.add_row(Text(tenant), *words.billed(bill))
    return table


def _finding(finding: ReportFinding) -> Text:
    wrong = finding.severity == "wrong"
    text = Text("wrong " if wrong else "doubtful ", style="bold red" if wrong else "bold yellow")
    text.append(f"{finding.engine or 'no engine'}, {finding.detail} ", style="")
    text.append(f"Likely: {finding.cause}. {finding.fix}".rstrip(), style="dim")
    return text
