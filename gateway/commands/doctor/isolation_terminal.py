"""What was found of isolation, as people read it on a terminal."""

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gateway.reports.isolation.result import Finding, Isolation
from gateway.reports.isolation.trial import Gain

_STYLES = {"isolated": "green", "leaks": "bold red", "cannot tell": "yellow"}
_VERDICTS = {
    "isolated": "Isolated: the second tenant gets nothing of the first one's prefixes.",
    "leaks": "It LEAKS: the second tenant gets something of the first one's prefixes.",
    "cannot tell": "Cannot tell.",
}


def print_isolation(found: Isolation, console: Console) -> None:
    """A row a tier, then the verdict."""
    head = Text(f"{found.url}, model ")
    head.append(found.model, style="bold")
    console.print(head.append(f". {found.requests} requests, {found.prompt_tokens:,} prompt tokens."))
    console.print(_table(found))
    console.print(_verdict(found))


def _table(found: Isolation) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for name in (
        "tier",
        "trials",
        "owner got",
        "other got",
        "of its own",
        "owner's hits",
        "other's",
        "verdict",
        "by",
    ):
        table.add_column(name, no_wrap=True)
    for each in found.findings:
        verdict = Text(each.verdict, style=_STYLES[each.verdict])
        table.add_row(*_cells(each), verdict, ", ".join(each.by) or "-")
    return table


def _cells(each: Finding) -> list[str]:
    counts = (each.own_reused, each.other_reused, each.other_cold_reused)
    said = ["not said" if count is None else f"{count:,}" for count in counts]
    return [each.tier, str(each.trials), *said, _gain(each.own_gain), _gain(each.other_gain)]


def _gain(gain: Gain) -> str:
    p = f"{gain.p:.0e}" if gain.p < 0.001 else f"{gain.p:.3f}"
    return f"x{gain.times:.2f}, p {p}"


def _verdict(found: Isolation) -> Panel:
    by = f" By {' and '.join(found.by)}." if found.by else ""
    lines = [Text(_VERDICTS[found.verdict] + by)]
    lines += [Text(f"{each.tier}: {each.why}") for each in found.findings]
    if found.missing:
        lines.append(Text(f"Asked for, and not reached: {', '.join(found.missing)}."))
    if found.not_reached:
        lines.append(Text(f"Not reached: {found.not_reached}."))
    if found.mate is not None:
        lines.append(Text(_mate(found)))
    style = _STYLES[found.verdict].removeprefix("bold ")
    return Panel(Group(*lines), border_style=style, title="verdict", title_align="left")


def _mate(found: Isolation) -> str:
    assert found.mate is not None
    if found.mate.shares is None:
        return "The tenant of the owner's group: what it reuses is not reported."
    if found.mate.shares:
        return f"The tenant of the owner's group reuses {found.mate.reused:,} tokens, as a group does."
    return "The tenant of the owner's group reuses nothing of it: they are not of one group, or not at one replica."
