"""Edits and findings as people read them on a terminal."""

import difflib
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from canon import CanonResult, Edit, Finding
from gateway.commands.wording import counted

_LINES = 40  # of one edit
_WIDTH = 400  # characters of one line
_SIGNS = {"\r": "␍", "\t": "→", "\ufeff": "<BOM>", "\u00a0": "<NBSP>"}


def print_result(result: CanonResult, policy: str, console: Console) -> None:
    """Each edit as a diff, then what was seen and left alone, then one line that sums up."""
    for edit in result.edits:
        console.print(_heading(edit))
        for line in _shown(list(difference(edit.before, edit.after))):
            console.print(line, soft_wrap=True)
        console.print()
    if result.findings:
        console.print(_findings(result.findings))
    console.print(_summary(result, policy))


def difference(before: str, after: str) -> Iterator[Text]:
    """The lines that differ, with a line of context around them; what cannot be seen is spelled out."""
    old, new = before.split("\n"), after.split("\n")
    groups = difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(1)
    for number, group in enumerate(groups):
        if number:
            yield Text("  ...", style="dim")
        for tag, i, j, k, m in group:
            if tag == "equal":
                yield from (Text(f"  {visible(line)}", style="dim") for line in old[i:j])
                continue
            yield from (Text(f"- {visible(line)}", style="red") for line in old[i:j])
            yield from (Text(f"+ {visible(line)}", style="green") for line in new[k:m])


def visible(line: str) -> str:
    """A line with signs for what cannot be seen; blanks only where they end it."""
    body = line.rstrip(" ")
    shown = "".join(_SIGNS.get(char, char if char.isprintable() else f"<U+{ord(char):04X}>") for char in body)
    shown += "·" * (len(line) - len(body))
    return shown if len(shown) <= _WIDTH else f"{shown[:_WIDTH]}... ({len(line):,} characters)"


def _heading(edit: Edit) -> Text:
    text = Text(edit.rule, style="bold")
    text.append(f"  {edit.path}", style="cyan")
    if edit.moved_to is not None:
        text.append(f"  moved to {edit.moved_to}", style="magenta")
    return text


def _shown(lines: Sequence[Text]) -> Sequence[Text]:
    if len(lines) <= _LINES:
        return lines
    return [
        *lines[:_LINES],
        Text(f"  ... {len(lines) - _LINES} more lines; --json has them all", style="dim"),
    ]


def _findings(findings: Sequence[Finding]) -> Table:
    table = Table(title="Seen and left alone", title_justify="left", expand=True)
    table.add_column("rule", no_wrap=True)
    for heading, ratio in (
        ("cause", 3),
        ("where", 3),
        ("what was seen", 3),
        ("what ends it", 4),
    ):
        table.add_column(heading, ratio=ratio, overflow="fold")
    for finding in findings:
        where = finding.path if finding.offset is None else f"{finding.path} at {finding.offset:,}"
        seen = "\n".join(visible(value) for value in finding.values) or finding.detail
        table.add_row(finding.rule, Text(finding.cause), Text(where), Text(seen), Text(finding.fix))
    return table


def _summary(result: CanonResult, policy: str) -> Text:
    edits = counted(len(result.edits), "edit")
    if result.edits and not result.changed:
        return Text(f"{edits} under policy {policy}, none applied.", style="yellow")
    if result.edits:
        return Text(f"{edits} under policy {policy}.", style="green")
    return Text(f"Nothing to edit under policy {policy}.", style="green")
