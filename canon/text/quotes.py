"""Quoted text of more than a line."""

from collections.abc import Sequence

from canon.text.guard import Guard

_PAIRS = {"“": "”", "„": "“", "«": "»", "「": "」", "『": "』", "《": "》"}
_MARKS = frozenset("".join(_PAIRS) + "".join(_PAIRS.values()))


def mark_quotes(lines: Sequence[str], guards: list[Guard | None]) -> None:
    """Marks Markdown quotes, and the lines from an opening quotation mark on to the line with its closing one."""
    for at, line in enumerate(lines):
        if guards[at] is None and line.lstrip(" ").startswith(">") and not line.startswith(">>> "):
            guards[at] = "quote"
    if any('"' in line for line in lines):
        _mark_straight(lines, guards)
    if any(not line.isascii() for line in lines):
        _mark_paired(lines, guards)


def _mark_straight(lines: Sequence[str], guards: list[Guard | None]) -> None:
    """A straight mark opens where a line, or what a label on it introduces, starts with it and does not close it."""
    start = -1
    for at, line in enumerate(lines):
        if guards[at]:
            start = -1
        elif line.count('"') % 2 == 0:
            continue
        elif start >= 0:
            guards[start : at + 1] = ["quote"] * (at + 1 - start)
            start = -1
        elif _opens(line):
            start = at


def _opens(line: str) -> bool:
    before = line[: line.rindex('"')].rstrip()
    return not before.strip("-*# \t") or before.endswith((":", "："))


def _mark_paired(lines: Sequence[str], guards: list[Guard | None]) -> None:
    closing, start = "", -1
    for at, line in enumerate(lines):
        if guards[at]:
            closing = ""
            continue
        for mark in line if _MARKS.intersection(line) else ():
            if closing and mark == closing:
                if at > start:
                    guards[start : at + 1] = ["quote"] * (at + 1 - start)
                closing = ""
            elif not closing and mark in _PAIRS:
                closing, start = _PAIRS[mark], at
