"""The passages of a text that are state of the moment as a whole, and the values that stand elsewhere.

A passage is lines: items, with the heading that would otherwise head nothing and the tags that would enclose nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from canon.text import Line
from canon.values.git import OPENING
from canon.values.headings import Heading, heading_of
from canon.values.items import item_of, label_only
from canon.values.promotion import (
    drop_configurations,
    drop_parents,
    drop_records,
    drop_referred,
    mark_repository,
    mark_titled_values,
    promote_blocks,
    promote_edges,
    promote_headed,
    promote_paragraphs,
)
from canon.values.screen import may_hold_item
from canon.values.sheet import Sheet, Stay, element_item
from canon.values.tags import opens_region

_LISTED = re.compile(r"[ \t]*(?:[-*•+]|\d{1,3}[.)])[ \t]|[^:：]{1,30}[:：][ \t]|[ \t]+\S")


@dataclass(frozen=True, slots=True)
class Passage:
    """`text[start:stop]`, which ends without a line end."""

    start: int
    stop: int
    kinds: tuple[str, ...]


def may_hold_passage(text: str) -> bool:
    """A look that knows no guards; False: `passages_of` finds nothing."""
    lines = dict.fromkeys(text.split("\n"))  # each once
    return any(_may_begin_passage(line) for line in filter(may_hold_item, lines))


def _may_begin_passage(line: str) -> bool:
    if line.lstrip(" \t").startswith("<") and "<!--" not in line:
        return opens_region(line) or element_item(line) is not None
    if item_of(line) is not None or OPENING.match(line):
        return True
    heading = heading_of(line.partition(":")[0] + ":") or heading_of(line)
    return heading is not None and (heading.personal or label_only(heading.title))


def passages_of(text: str, lines: Sequence[Line]) -> tuple[list[Passage], list[Stay]]:
    """In the order in which they stand. Takes time linear in the text."""
    sheet = Sheet(text, lines)
    mark_titled_values(sheet)
    mark_repository(sheet)
    drop_records(sheet)
    drop_configurations(sheet)
    drop_referred(sheet)
    promote_paragraphs(sheet)
    promote_headed(sheet)
    promote_blocks(sheet)
    promote_edges(sheet)
    drop_parents(sheet)
    _mark_regions(sheet)
    _mark_headings(sheet)
    _mark_regions(sheet)
    return _runs(sheet), sheet.stays


def _mark_headings(sheet: Sheet) -> None:
    """A heading goes along where nothing is left for it to head. One pass, from the last line to the first."""
    blocks = {region.first: region.last for region in sheet.regions.all}
    kept = blank = below = len(sheet)  # the next line that stays, that is blank, and that is not
    for at in range(len(sheet) - 1, -1, -1):
        if sheet.blank[at]:
            blank = at
            continue
        heading = sheet.headings[at]
        if (
            heading is not None
            and not sheet.moves[at]
            and sheet.plain(at)
            and _has_below(sheet, at, below, heading)
        ):
            if not heading.marked and below in blocks:
                heads_nothing = True  # a few words head the block of tags below them
            elif kept > blank and not (heading.marked and not heading.state):
                heads_nothing = True  # they head their paragraph; so does a title that announces state
            else:
                heads_nothing = kept == len(sheet) or _ends_section(sheet, kept, heading)
            if heads_nothing:
                sheet.move(at)
        below = at
        if not sheet.moves[at]:
            kept = at


def _has_below(sheet: Sheet, at: int, below: int, heading: Heading) -> bool:
    """Whether what the heading heads begins with something that leaves."""
    if below == len(sheet) or not sheet.moves[below]:
        return False
    return below == at + 1 or (heading.marked and below <= at + 3)


def _ends_section(sheet: Sheet, at: int, heading: Heading) -> bool:
    """Whether a line that stays is behind what the heading heads."""
    string, other = sheet.strings[at], sheet.headings[at]
    if string.lstrip().startswith("</"):
        return True
    if heading.marked and other is not None and other.marked and other.level <= heading.level:
        return True
    return heading.state and _LISTED.match(string) is None


def _mark_regions(sheet: Sheet) -> None:
    """Tags go along where nothing is left between them."""
    for region in sheet.regions.all:
        rows = sheet.rows(region.first + 1, region.last)
        if rows and all(sheet.moves[at] for at in rows):
            sheet.move(region.first)
            sheet.move(region.last)


def _runs(sheet: Sheet) -> list[Passage]:
    """Neighbouring lines that leave, as one passage; blank lines between them go along."""
    passages: list[Passage] = []
    run: list[int] = []
    for at in [*(at for at in range(len(sheet)) if not sheet.blank[at]), -1]:
        if at >= 0 and sheet.moves[at]:
            run.append(at)
        elif run:
            kinds = dict.fromkeys(sheet.kinds[row] for row in run if row in sheet.kinds)
            passages.append(Passage(sheet.lines[run[0]].start, sheet.lines[run[-1]].end, tuple(kinds)))
            run = []
    return passages
