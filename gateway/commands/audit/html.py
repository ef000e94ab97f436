"""The audit as one HTML page that needs nothing else."""

from html import escape

from gateway.commands.audit import words
from gateway.commands.audit.plot import plot
from gateway.reports.audit import AuditReport, GroupFigures, Money, Percentiles

_STYLE = """
:root { --ink: #1c2430; --soft: #5c6878; --line: #d8dee6; --page: #fff; --reused: #2f9e6e; --computed: #c9d2dd; }
@media (prefers-color-scheme: dark) { :root { --ink: #dde3ec; --soft: #93a0b2; --line: #333c49; --page: #14181f;
--reused: #3fbf87; --computed: #3a4554; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; color: var(--ink);
background: var(--page); } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
table { border-collapse: collapse; width: 100%; } th { color: var(--soft); font-weight: 500; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.cards { display: flex; flex-wrap: wrap; gap: 2.5rem; margin: 1rem 0; } .cards b { display: block; font-size: 1.7rem;
font-variant-numeric: tabular-nums; } small, .soft { color: var(--soft); } svg { width: 100%; height: auto; }
.wrong { border-left: 4px solid #d64545; padding-left: .8rem; } .doubtful { border-left: 4px solid #d9a400;
padding-left: .8rem; }
"""


def as_html(report: AuditReport) -> str:
    """The page as text."""
    total = report.total
    groups = _groups(report) if report.groups else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>kvgate audit</title><style>{_STYLE}</style></head><body>
<h1>Reuse, {escape(words.window(report))}</h1>
<div class=cards>
{_card("reuse rate", words.rate(total.reuse_rate))}
{_card("reused", words.tokens(total.reused), words.per_second(total.reused_per_s))}
{_card("recomputed", words.tokens(total.recomputed), words.per_second(total.recomputed_per_s))}
{_card("requests", f"{total.requests:,}")}
{_card("prefill saved", words.span(total.prefill_saved_s), "estimated")}
</div>
{plot(report)}
<p class=soft>Prefill saved: {escape(words.saved(total))}. Reused by tier: {escape(_tiers(total))}.</p>
<h2>By class</h2>{_classes(total)}
{groups}{_causes(report)}{_reconciled(report)}{_money(report.money)}{_findings(report)}
</body></html>
"""


def _card(label: str, value: str, more: str = "") -> str:
    return f"<div><small>{escape(label)}</small><b>{escape(value)}</b><small>{escape(more)}</small></div>"


def _tiers(group: GroupFigures) -> str:
    parts = [f"{tier} {words.tokens(count)}" for tier, count in group.tiers.items()]
    untold = [f"not told {words.tokens(group.untold_tier)}"] if group.untold_tier else []
    return ", ".join(parts + untold) or words.UNKNOWN


def _table(headings: list[str], rows: list[list[str]], texts: int = 1) -> str:
    """The first `texts` columns are text, the others numbers."""
    head = "".join(f"<th{_kind(i, texts)}>{escape(heading)}</th>" for i, heading in enumerate(headings))
    body = "".join(
        "<tr>" + "".join(f"<td{_kind(i, texts)}>{escape(cell)}</td>" for i, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _kind(column: int, texts: int) -> str:
    return "" if column < texts else " class=n"


def _classes(group: GroupFigures) -> str:
    times = ["TTFT p50, ms", "p90", "p99", "TPOT p50, ms", "p90", "p99"]
    rows = [
        [name, f"{its.requests:,}", words.tokens(its.prompt), *_times(its.ttft), *_times(its.tpot)]
        for name, its in group.classes.items()
    ]
    return _table(["class", "requests", "prompt tokens", *times], rows)


def _times(found: Percentiles | None) -> list[str]:
    if found is None:
        return [words.UNKNOWN] * 3
    return [words.milliseconds(value) for value in (found.p50, found.p90, found.p99)]


def _groups(report: AuditReport) -> str:
    rows = [
        [
            words.name_of(group),
            f"{group.requests:,}",
            words.rate(group.reuse_rate),
            words.tokens(group.reused),
            words.tokens(group.recomputed),
            *(f"{its.requests:,}" for its in group.classes.values()),
            words.span(group.prefill_saved_s),
        ]
        for group in report.groups
    ]
    headings = ["requests", "reuse rate", "reused", "recomputed", *report.total.classes, "prefill saved"]
    name = " / ".join(report.by)
    return f"<h2>By {escape(name)}</h2>{_table([name, *headings], rows)}"


def _causes(report: AuditReport) -> str:
    if not report.causes:
        return ""
    rows = [
        [cause.cause, words.what_it_is(cause), words.tokens(cause.tokens), f"{cause.requests:,}"]
        for cause in report.causes
    ]
    head = ["cause", "what it is", "tokens", "requests"]
    return f"<h2>Why tokens that could be reused were computed</h2>{_table(head, rows, texts=2)}"


def _reconciled(report: AuditReport) -> str:
    if not report.reconciled:
        return ""
    rows = [[each.engine, *words.reconciled(each)] for each in report.reconciled]
    return f"<h2>Requests against the engine's own counters</h2>{_table(['engine', *words.RECONCILED], rows)}"


def _money(money: Money | None) -> str:
    if money is None:
        return ""
    rows = [[tenant, *words.billed(bill)] for tenant, bill in money.bills.items()]
    return f"<h2>Money by tenant, {escape(money.currency)}</h2>{_table(['tenant', *words.BILLED], rows)}"


def _findings(report: AuditReport) -> str:
    parts = [
        f"<p class={finding.severity}><b>{escape(finding.engine or 'no engine')}</b>, {escape(finding.detail)} "
        f"<span class=soft>Likely: {escape(finding.cause)}. {escape(finding.fix)}</span></p>"
        for finding in report.findings
    ]
    return f"<h2>What cannot be right, or may not be</h2>{''.join(parts)}" if parts else ""
