"""An examination as people read it on a terminal."""

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gateway.reports.doctor import Check, Checkup

_MARKS = {
    "yes": ("yes", "green"),
    "no": ("NO", "bold red"),
    "unknown": ("?", "yellow"),
    "absent": ("-", "dim"),
}


def print_checkup(checkup: Checkup, console: Console) -> None:
    """The checks, then the verdict with what to change."""
    console.print(_head(checkup))
    console.print(_checks(checkup.checks))
    console.print(_verdict(checkup))


def _head(checkup: Checkup) -> Text:
    version = f" {checkup.version}" if checkup.version else ""
    text = Text(f"{checkup.kind_shown}{version} at {checkup.url}, model ")
    text.append(checkup.model, style="bold")
    return text.append(f". {checkup.requests} requests, {checkup.prompt_tokens:,} prompt tokens.")


def _checks(checks: tuple[Check, ...]) -> Table:
    table = Table(show_edge=False, pad_edge=False, expand=True)
    table.add_column("", no_wrap=True)
    table.add_column("question", ratio=2)
    table.add_column("what it said", ratio=3, overflow="fold")
    for check in checks:
        mark, style = _MARKS[check.finding]
        table.add_row(Text(mark, style=style), Text(check.question), Text(check.detail))
    return table


def _verdict(checkup: Checkup) -> RenderableType:
    lines = [Text(checkup.verdict), *(Text(f"-> {fix}", style="bold") for fix in checkup.fixes)]
    lines += [Text(f"It could tell more with {flag}") for flag in checkup.others]
    style = "green" if checkup.healthy else "red" if checkup.fixes else "yellow"
    return Panel(Group(*lines), border_style=style, title="verdict", title_align="left")
