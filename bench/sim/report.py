"""Hit rates as a table and as a plot against the optimum, on a terminal."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.sim.replay import OPT, SimResult

_PLOT = 48  # characters of the longest bar
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def as_json(results: Sequence[SimResult]) -> bytes:
    """One object for one result, a list for several."""
    rows = [asdict(result) for result in results]
    return orjson.dumps(rows[0] if len(rows) == 1 else rows)


def print_results(title: str, results: Sequence[SimResult], out: TextIO) -> None:
    """Policies by rows and capacities by columns; under it, for each capacity, a bar for each policy."""
    rates = {(result.policy, result.blocks): result.hit_rate for result in results}
    policies = list(dict.fromkeys(result.policy for result in results))
    sizes = list(dict.fromkeys(result.blocks for result in results))
    console = Console(file=out, width=None if out.isatty() else 120, highlight=False)
    console.print(title, style="bold")
    console.print(_table(rates, policies, sizes))
    for size in sizes:
        console.print(f"\n{size:,} blocks, hit rate against OPT", style="bold")
        scale = max(rates[policy, size] for policy in policies)
        for policy in policies:
            console.print(_bar(policy, rates[policy, size], rates.get((OPT, size)), scale))


def _table(rates: dict[tuple[str, int], float], policies: Sequence[str], sizes: Sequence[int]) -> Table:
    table = Table()
    table.add_column("block hit rate")
    for size in sizes:
        table.add_column(f"{size:,}", justify="right")
    for policy in policies:
        table.add_row(policy, *(f"{rates[policy, size]:.4f}" for size in sizes))
    return table


def _bar(policy: str, rate: float, best: float | None, scale: float) -> Text:
    eighths = round(rate / scale * _PLOT * 8) if scale else 0
    bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    share = f"  {rate / best:4.0%} of OPT" if best and policy != OPT else ""
    return Text(f"{policy:>14} ") + Text(bar, style="cyan") + Text(f" {rate:.3f}{share}")
