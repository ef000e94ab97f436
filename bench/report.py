"""A bench's figures as a table for people and as JSON for machines."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TextIO

import orjson
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a bench: what was measured, the peer's figure and ours, their ratio and its target."""

    name: str
    peer: str  # who the other side is
    peer_value: float | None  # None: the peer is not installed
    our_value: float
    unit: str
    ratio: float | None
    target: float
    sense: Literal["at least", "at most"]
    missing: str = ""  # how to install the peer, where it is not

    @property
    def reached(self) -> bool | None:
        """None where there was nothing to compare with."""
        if self.ratio is None:
            return None
        return self.ratio >= self.target if self.sense == "at least" else self.ratio <= self.target


def as_json(figures: Sequence[Figure], facts: dict[str, Any]) -> bytes:
    """`{"facts": {...}, "figures": [...]}`, indented."""
    rows = [asdict(figure) | {"reached": figure.reached} for figure in figures]
    return orjson.dumps({"facts": facts, "figures": rows}, option=orjson.OPT_INDENT_2)


def print_table(figures: Sequence[Figure], facts: dict[str, Any], out: TextIO) -> None:
    """A table on the terminal, the facts of the run under it."""
    table = Table(title="kvgate bench", title_justify="left")
    for heading, justify in (("what", "left"), ("peer", "left"), ("peer's", "right"), ("ours", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for heading in ("ratio", "target", "reached"):
        table.add_column(heading, justify="right")
    for figure in figures:
        table.add_row(*_cells(figure))
    console = Console(file=out, width=None if out.isatty() else 150)
    console.print(table)
    console.print("  ".join(f"{key}: {value}" for key, value in facts.items()))


def timed_progress() -> Callable[[str], None]:
    """Prints lines on stderr with the seconds since now in front."""
    started = time.perf_counter()

    def progress(line: str) -> None:
        print(f"[{time.perf_counter() - started:6.1f} s] {line}", file=sys.stderr, flush=True)

    return progress


def publish(figures: Sequence[Figure], facts: dict[str, Any], *, json: bool) -> bool:
    """Print the figures on stdout, and say whether every target that could be measured was reached."""
    if json:
        sys.stdout.write(as_json(figures, facts).decode() + "\n")
    else:
        print_table(figures, facts, sys.stdout)
    return all(figure.reached is not False for figure in figures)


def _cells(figure: Figure) -> tuple[str, ...]:
    reached = {True: "[green]yes[/]", False: "[red]no[/]", None: _unmeasured(figure)}[figure.reached]
    return (
        figure.name,
        figure.peer,
        "-" if figure.peer_value is None else f"{_number(figure.peer_value)} {figure.unit}",
        f"{_number(figure.our_value)} {figure.unit}",
        "-" if figure.ratio is None else _number(figure.ratio),
        f"{figure.sense} {figure.target:g}",
        reached,
    )


def _unmeasured(figure: Figure) -> str:
    return f"not measured: {figure.missing}" if figure.missing else "not measured"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
