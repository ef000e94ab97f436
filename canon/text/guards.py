"""Which lines of a text are not prose.

Each finder marks its lines in one pass over all lines, and leaves alone what one before it has marked: so a tag inside
a fence opens nothing. In doubt a line is guarded, because a missed edit costs a little reuse and a wrong one harms.
"""

import re
from collections.abc import Sequence

from canon.text.announced import mark_announced
from canon.text.guard import Guard
from canon.text.indentation import mark_indented
from canon.text.markup import mark_tags
from canon.text.quotes import mark_quotes

Guards = list[Guard | None]

_FENCE = re.compile(r"`{3,}|~{3,}|\"{3}|'{3}")
_MARKS = ("```", "~~~", '"""', "'''")
_DIFF_START = re.compile(r"diff --git |@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@|Index: |\*\*\* Begin Patch")
_DIFF_LINE = re.compile(
    r"[ +\-\\]|@@|diff |index |Index: |=======|\*\*\* |(?:new|deleted|old) (?:file )?mode "
)
_GRID = re.compile(r"\s*[+|][-=+:| ]*[+|]\s*$")
_PIPE_RULE = re.compile(r"\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)+$")
_GAP = re.compile(r"\t+|(?<![.!?:;,\s]) {2,}")  # two blanks after a sentence are an old habit of typists

_SPACED = ("diff", "indent", "code")


def guards_of(lines: Sequence[str]) -> Guards:
    """What guards each line, in order; None: it is prose."""
    guards: Guards = [None] * len(lines)
    _mark_fences(lines, guards)
    _mark_diffs(lines, guards)
    _mark_tables(lines, guards)
    mark_quotes(lines, guards)
    mark_tags(lines, guards)
    mark_indented(lines, guards)
    mark_announced(lines, guards)
    _mark_blank_lines_between(lines, guards)
    return guards


def _mark_fences(lines: Sequence[str], guards: Guards) -> None:
    """Fences as in CommonMark 0.31, section 4.5, but at any indentation, and opening behind text as well."""
    opened, mark = -1, ""
    for at, line in enumerate(lines):
        if not mark:
            mark = _opening(line)
            opened = at
        elif _closes(line, mark):
            guards[opened:at] = ["fence"] * (at - opened)
            if line.strip(" \t" + mark[0]):  # content with the marks behind it
                guards[at] = "fence"
            mark = ""
    if mark[:1] in (
        "`",
        "~",
    ):  # never closed: to the end, as Markdown has it; a lone triple quote opens nothing
        guards[opened:] = ["fence"] * (len(lines) - opened)


def _opening(line: str) -> str:
    """The marks of the fence that is still open at the line's end, or nothing."""
    mark = ""
    if not any(marks in line for marks in _MARKS):
        return mark
    for found in _FENCE.finditer(line):
        if not mark:
            mark = found[0]
        elif found[0].startswith(mark):
            mark = ""
    return mark


def _closes(line: str, mark: str) -> bool:
    bare = line.strip(" \t")
    if mark[0] in "\"'":
        return mark in bare
    # The marks alone; or, since people write that, at the end of the last line of what is fenced.
    return bare.endswith(mark) and (not bare.strip(mark[0]) or bare.count(mark[0]) == len(mark))


def _mark_diffs(lines: Sequence[str], guards: Guards) -> None:
    inside = False
    for at, line in enumerate(lines):
        if guards[at]:
            inside = False
        elif _starts_diff(lines, at) or (inside and (not line or _DIFF_LINE.match(line))):
            guards[at] = "diff"
            inside = True
        else:
            inside = False


def _starts_diff(lines: Sequence[str], at: int) -> bool:
    line = lines[at]
    if line.startswith("--- "):
        return at + 1 < len(lines) and lines[at + 1].startswith("+++ ")
    return _DIFF_START.match(line) is not None


def _mark_tables(lines: Sequence[str], guards: Guards) -> None:
    for at, line in enumerate(lines):
        if guards[at] is None and _is_row(line):
            guards[at] = "table"
            if _PIPE_RULE.match(line):
                _mark_rows_around(lines, guards, at)


def _is_row(line: str) -> bool:
    if "|" in line:
        bare = line.strip()
        return bare[0] == "|" or bare[-1] == "|" or line.count("|") > 1 or _PIPE_RULE.match(line) is not None
    if "\t" in line or "  " in line:
        gaps = _GAP.findall(line.strip())
        return len(gaps) > 1 or any("\t" in gap for gap in gaps)
    return line.lstrip()[:1] == "+" and _GRID.match(line) is not None


def _mark_rows_around(lines: Sequence[str], guards: Guards, rule: int) -> None:
    if rule and "|" in lines[rule - 1]:
        guards[rule - 1] = "table"
    at = rule + 1
    while at < len(lines) and "|" in lines[at] and guards[at] is None:
        guards[at] = "table"
        at += 1


def _mark_blank_lines_between(lines: Sequence[str], guards: Guards) -> None:
    """Blank lines inside a program, YAML or a patch belong to it; at the text's end, those behind YAML or a patch."""
    last: Guard | None = None
    blanks: list[int] = []
    for at, line in enumerate(lines):
        if not line.strip() and guards[at] is None:
            blanks.append(at)
            continue
        if last in _SPACED and guards[at] in _SPACED:
            for blank in blanks:
                guards[blank] = last
        last, blanks = guards[at], []
    if last in ("diff", "indent"):
        for blank in blanks:
            guards[blank] = last
