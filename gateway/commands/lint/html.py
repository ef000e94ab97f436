"""Lint's report as one HTML page that needs nothing else."""

from html import escape

from canon.lint import LintReport
from canon.results import Finding
from gateway.commands.lint.log_files import Place
from gateway.commands.lint.terminal import visible
from gateway.commands.wording import counted

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1c2430; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 2rem; }
th, td { text-align: left; padding: .4rem .6rem; border-bottom: 1px solid #d8dee6; vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
code, del, ins { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
del { display: block; background: #fdecea; text-decoration: none; } ins { display: block; background: #e6f4ea;
text-decoration: none; } .bar { background: #e4e9f0; height: .7rem; border-radius: .35rem; margin: .2rem 0 .8rem; }
.bar span { display: block; height: 100%; border-radius: .35rem; background: #2f6fde; }
@media (prefers-color-scheme: dark) { body { background: #14181f; color: #dde3ec; } th, td { border-color: #333c49; }
del { background: #4a2320; } ins { background: #1f3d2a; } .bar { background: #2a323e; } }
"""


def as_html(report: LintReport, places: list[Place], policy: str) -> str:
    """The page as text."""
    rows = "".join(
        _row(finding, places[seen]) for finding, seen in zip(report.findings, report.first_seen, strict=True)
    )
    gains = "".join(
        f"<tr><td>{escape(gain.rule)}</td><td class=n>{gain.requests:,}</td><td class=n>{gain.reuse_before:.1%}</td>"
        f"<td class=n>{gain.reuse_after:.1%}</td><td class=n>{gain.tokens_saved:,}</td></tr>"
        for gain in report.rules
    )
    hazards = "".join(
        f"<p>The model has {escape(each.cause)}: {escape(each.detail)}. What ends it: {escape(each.fix)}.</p>"
        for each in report.template
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>kvgate lint</title><style>{_STYLE}</style></head><body>
<h1>What breaks the prefixes of this log</h1>
<p>{counted(report.requests, "request")}, {report.prompt_tokens:,} prompt tokens. {escape(report.incomplete)}</p>
{_bar("Reuse rate as it is", report.reuse_before)}{_bar(f"Under policy {policy}", report.reuse_after)}
{hazards}<table><thead><tr><th class=n>tokens lost</th><th class=n>requests</th><th>cause</th><th>where</th>
<th>before, after</th><th>what ends it</th></tr></thead><tbody>{rows}</tbody></table>
<table><thead><tr><th>rule</th><th class=n>requests edited</th><th class=n>reuse before</th><th class=n>reuse after</th>
<th class=n>tokens saved</th></tr></thead><tbody>{gains}</tbody></table>
</body></html>
"""


def _bar(label: str, share: float) -> str:
    return (
        f'<div>{escape(label)}: {share:.1%}<div class=bar><span style="width:{share:.1%}"></span></div></div>'
    )


def _row(finding: Finding, place: Place) -> str:
    before, after = (escape(visible(value)) for value in (*finding.values, "", "")[:2])
    where = f"<code>{escape(finding.path)}</code><br>{escape(place.log)}:{place.line}"
    return (
        f"<tr><td class=n>{finding.tokens_lost:,}</td><td class=n>{finding.requests:,}</td>"
        f"<td>{escape(finding.cause)}</td><td>{where}</td><td><del>{before}</del><ins>{after}</ins></td>"
        f"<td>{escape(finding.fix)}</td></tr>"
    )
