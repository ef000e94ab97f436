"""What a line's surroundings say about it: lists of records stay, blocks of state leave as a whole."""

import re
from collections.abc import Sequence
from itertools import pairwise

from canon.values.announcements import REFERS
from canon.values.git_block import mark_git_blocks
from canon.values.items import Item, item_of, says_present
from canon.values.screen import may_hold_item
from canon.values.sheet import Sheet

_DIGITS = re.compile(r"\d+")
_HEADER = re.compile(r"[A-Z][A-Za-z-]*(?: [a-z]+)?: \S")  # the lines of a letter's or a record's head
_STARTS = frozenset(("start", "started", "opened", "began"))
_ASSIGNMENT = re.compile(r"(?:export |set )?[A-Za-z_][\w.-]{0,60} ?= ?\S")
_SECTION = re.compile(r"\[{1,2}[\w.\"-]{1,60}\]{1,2}[ \t]*$")
_KEY_FIELD = re.compile(
    r"[-*• \t]*(?:alert|incident|ticket|patient|exception|invoice|severity|passenger|order (?:id|number))"
    r"(?: #?\w{1,12})? ?[:：]",
    re.IGNORECASE,
)
_FIELD = re.compile(
    r"[-*• \t]*(?:status|subject|priority|ticket|order|text|description|title|gate|seat|patient|message|error|severity"
    r"|exception|assignee|amount|total|invoice|product|reference|password|phone|address|diagnosis|betreff|betrag"
    r"|beschreibung|bestellung|sujet|montant|asunto|importe|oggetto|importo|assunto|тема|状态|主题|件名|제목)"
    r"(?: [\w#-]{1,20}){0,2} ?[:：]",
    re.IGNORECASE,
)
_ORDER = 160  # characters of an order
_EDGE_KINDS = frozenset(("clock", "counter", "uuid", "ulid", "ksuid", "traceparent"))
_NEIGHBOUR_KINDS = _EDGE_KINDS | {"date"}


def mark_titled_values(sheet: Sheet) -> None:
    """A value in the line below its label: `## Current time`, `2030-02-06 10:31`."""
    for at, heading in enumerate(sheet.headings):
        if heading is None or sheet.moves[at] or not sheet.plain(at):
            continue
        below = sheet.below(at)
        if below is None or below - at > 2 or sheet.moves[below] or not sheet.plain(below):
            continue
        alone = heading.marked or below + 1 == len(sheet) or sheet.items[below + 1] is None
        if not alone or not may_hold_item(heading.title):
            continue
        item = item_of(f"{heading.title}: {sheet.strings[below].strip()}")
        if item and item.whole and item.sure:
            sheet.move(at, item.kind)
            sheet.move(below, item.kind)


def mark_repository(sheet: Sheet) -> None:
    for at in mark_git_blocks(sheet.strings, sheet.free):
        sheet.move(at, "git status")


def drop_records(sheet: Sheet) -> None:
    """The same label over different values is a list of records or steps, not the state of the moment.

    Unless the label says that it is the present one: `Current time in Oslo`, `Current time in Tokyo`.
    """
    seen: dict[tuple[object, ...], list[int]] = {}
    for at, item in enumerate(sheet.items):
        if item is None or not (sheet.moves[at] or sheet.weak[at]):
            continue
        if item.kind != "state" and item.labelled:
            seen.setdefault(_record_key(item, sheet.strings[at]), []).append(at)
    for places in seen.values():
        if len({_values(sheet, at) for at in places}) > 1:
            for at in places:
                sheet.stay(at)


def _values(sheet: Sheet, at: int) -> tuple[str, ...]:
    item = sheet.items[at]
    return tuple(sheet.strings[at][start:stop] for _, start, stop in item.values) if item else ()


def _record_key(item: Item, string: str) -> tuple[object, ...]:
    if says_present(item.words):
        return ("present", _around(item, string))
    shape = _DIGITS.sub("0", string.strip()) if item.kind == "counter" else item.kind
    return (item.words, shape)


def _around(item: Item, string: str) -> str:
    """The line without its values."""
    pieces, at = [], 0
    for _, start, stop in item.values:
        pieces.append(string[at:start])
        at = stop
    return "\0".join((*pieces, string[at:])).strip().casefold()


def drop_referred(sheet: Sheet) -> None:
    """Places and names that an order in the next line speaks of; a clock is found in the note just as well."""
    for at in range(len(sheet) - 1):
        item, below = sheet.items[at], sheet.strings[at + 1]
        if item is None or not sheet.moves[at] or item.kind in _NEIGHBOUR_KINDS or sheet.items[at + 1]:
            continue
        if len(below) <= _ORDER and REFERS.search(below):
            sheet.stay(at)


def drop_configurations(sheet: Sheet) -> None:
    """Settings of a program and forms of a record: what is in them says nothing of the moment."""
    for first, stop in sheet.paragraphs:
        rows = range(first, stop)
        if any(sheet.moves[at] or sheet.weak[at] for at in rows) and _is_record(sheet, rows):
            for at in rows:
                item = sheet.items[at]
                if item is not None and not (
                    item.words and says_present(item.words) and not _sets(sheet, at)
                ):
                    sheet.stay(at)


def _is_record(sheet: Sheet, rows: Sequence[int]) -> bool:
    """A section of settings, an assignment that is none of the moment, or the fields of a ticket."""
    others = [sheet.strings[at] for at in rows if sheet.items[at] is None]
    if any(_sets(sheet, at) for at in rows):
        return any(_ASSIGNMENT.match(other) or _SECTION.match(other) for other in others)
    fields = sum(1 for other in others if _FIELD.match(other))
    return fields > 1 or any(_KEY_FIELD.match(other) for other in others)


def _sets(sheet: Sheet, at: int) -> bool:
    return _ASSIGNMENT.match(sheet.strings[at]) is not None


def promote_paragraphs(sheet: Sheet) -> None:
    """Lines that could be of the moment are, in a paragraph where each line is and one is for sure."""
    for first, stop in sheet.paragraphs:
        rows = [row for row in range(first, stop) if sheet.headings[row] is None or sheet.moves[row]]
        _promote(sheet, rows, any(sheet.moves[row] for row in rows))
        _promote_neighbours(sheet, rows)


def _promote_neighbours(sheet: Sheet, rows: Sequence[int]) -> None:
    """A time or a counter in the line before or after one that leaves: `Today's date: ...`, `Time: ...`."""
    for row in (rows, rows[::-1]):
        for at, neighbour in pairwise(row):
            item = sheet.items[neighbour]
            if sheet.moves[at] and sheet.weak[neighbour] and item and item.kind in _NEIGHBOUR_KINDS:
                sheet.move(neighbour)


def promote_headed(sheet: Sheet) -> None:
    """The same below a title that announces state."""
    blocks: dict[int, list[int]] = {}
    for at, by in enumerate(sheet.headed):
        if by >= 0:
            blocks.setdefault(by, []).append(at)
    for rows in blocks.values():
        _promote(sheet, rows, any((item := sheet.items[at]) and item.kind != "state" for at in rows))


def promote_blocks(sheet: Sheet) -> None:
    """The same inside the tags of a block of state; where the block is the user's or the session's, none need be
    for sure."""
    for region in sheet.regions.all:
        if region.kind == "state":
            rows = sheet.rows(region.first + 1, region.last)
            _promote(sheet, rows, region.personal or any(sheet.moves[at] for at in rows))


def _promote(sheet: Sheet, rows: Sequence[int], sure: bool) -> None:
    if sure and all(sheet.moves[at] or sheet.weak[at] for at in rows):
        for at in rows:
            sheet.move(at)


def promote_edges(sheet: Sheet) -> None:
    """A time of day, a counter or a minted id that is the first or the last line of the text, or a paragraph
    of its own."""
    full = sheet.rows(0, len(sheet))
    alone = [at for at in full if _is_paragraph(sheet, at)]
    for at in dict.fromkeys((*full[:1], *full[-1:], *alone)):
        item = sheet.items[at]
        if item is None or not sheet.weak[at] or item.kind not in _EDGE_KINDS:
            continue
        if not (item.labelled or at in (full[0], full[-1])):
            continue
        near = (each for each in (at - 1, at + 1) if 0 <= each < len(sheet))
        if _STARTS.isdisjoint(item.words) and not any(_HEADER.match(sheet.strings[each]) for each in near):
            sheet.move(at)


def _is_paragraph(sheet: Sheet, at: int) -> bool:
    return sheet.blank[at - 1 : at] != [False] and sheet.blank[at + 1 : at + 2] != [False]


def drop_parents(sheet: Sheet) -> None:
    """What stands indented below a line belongs to it: they leave together or not at all."""
    for at in range(len(sheet) - 2, -1, -1):
        if sheet.moves[at] and sheet.items[at] and not sheet.blank[at + 1] and not sheet.moves[at + 1]:
            line, below = sheet.strings[at], sheet.strings[at + 1]
            if len(below) - len(below.lstrip(" \t")) > len(line) - len(line.lstrip(" \t")):
                sheet.stay(at)
