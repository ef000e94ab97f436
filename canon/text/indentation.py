"""Programs, YAML and whatever else says something by its indentation."""

import re
from collections.abc import Sequence

from canon.text.guard import Guard

_CODE = re.compile(
    r"import [\w.]+|from [\w.]+ import |#include\b|def \w+\(|class \w+[:(]|@\w+[\w.]*(?:\(|$)|>>> |\.\.\. |\$ \w"
    r"|func \w+\(|fn \w+|package \w+;?$|(?:const|let|var) \w+ ?=|SELECT |CREATE (?:TABLE|INDEX)"
    r"|[}\])]+[;,]?$|\{|\[[{\[\"]"
)
# What opens an indented block or stands beside one in YAML: a key of one word in lower case, or an item that has one.
_KEY = re.compile(r"(?:- )*[\"']?[a-z_$/.\d][\w.$/-]*[\"']? ?:(?:\s|$)|---$")
_BLOCK_SCALAR = re.compile(r"(?:- )*[\w.\"'-]+: [|>][+-]?\d?[+-]?\s*(?:#.*)?$")
_ITEM = re.compile(r"(?:[-*+•]|\d{1,3}[.)]) \S")


def mark_indented(lines: Sequence[str], guards: list[Guard | None]) -> None:
    """Marks lines indented past the text's own margin, and the unindented lines that belong to such a block.

    Items of a list under items of a list are prose, as they are in Markdown, and so are their further lines.
    """
    margin = _margin(lines)
    item = False  # was the line before this one, blank ones left out, prose of an item of a list?
    for at, line in enumerate(lines):
        if guards[at] or not line.strip():
            item = item and not guards[at]
            continue
        bare = line.lstrip(" \t")
        is_prose = not is_key(bare) and not _is_code(bare)
        is_item = is_prose and _ITEM.match(bare) is not None
        goes_on = is_prose and line[:1] == " " and bool(lines[at - 1].strip())  # a long item's next line
        if line[:1] in " \t" and _indent(line) > margin and not (item and (is_item or goes_on)):
            guards[at] = "indent"
        elif _is_code(line[margin:]):
            guards[at] = "code"
        item = guards[at] is None and (is_item or (item and goes_on))
    _mark_heads(lines, guards, margin)
    _mark_block_scalars(lines, guards)


def _margin(lines: Sequence[str]) -> int:
    """Blanks that all lines start with, but for the first, as in a text cut out of a program's source."""
    first = lines[0].rstrip()
    rest = [line for line in lines[1:] if line.strip()]
    if len(rest) < 3 or first.endswith((":", "{", "(", "[")) or _is_code(first) or _opens_scalar(first):
        return 0
    return min(map(_indent, rest))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def is_key(line: str) -> bool:
    """Whether a line begins with a key of YAML, one word in lower case, as few labels in prose are."""
    return _KEY.match(line) is not None


def _is_code(line: str) -> bool:
    bare = line.rstrip()
    if bare.endswith(("{", ");", "};")) or (bare.endswith(";") and "=" in bare):
        return True
    return _CODE.match(bare) is not None


def _mark_heads(lines: Sequence[str], guards: list[Guard | None], margin: int) -> None:
    """Unindented lines in a run of keys or items that has an indented line: the run is one block."""
    for order in (range(len(lines) - 1, -1, -1), range(len(lines))):
        block = False
        for at in order:
            if guards[at] == "indent":
                block = True
            elif guards[at] is not None or not block:
                block = False
            elif is_key(lines[at][margin:]):
                guards[at] = "indent"
            else:
                block = False


def _mark_block_scalars(lines: Sequence[str], guards: list[Guard | None]) -> None:
    """`key: |` and what is indented under it, blank lines included: YAML 1.2.2, section 8.1."""
    level = -1  # indentation of the key of the scalar that is open; -1: none is
    for at, line in enumerate(lines):
        if level >= 0 and (not line.strip() or _indent(line) > level):
            guards[at] = guards[at] or "indent"
            continue
        level = -1
        if guards[at] in (None, "indent") and _opens_scalar(line):
            guards[at] = "indent"
            level = _indent(line)


def _opens_scalar(line: str) -> bool:
    return (": |" in line or ": >" in line) and _BLOCK_SCALAR.match(line.lstrip(" \t")) is not None
