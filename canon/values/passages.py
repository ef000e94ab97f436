"""The passages of a text that are state of the moment as a whole, and the values that stand elsewhere.

A passage is lines: items, with the heading that would otherwise head nothing and the tags that would enclose nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from canon.text import Line
from canon.values.git_block import mark_git_blocks
from canon.values.headings import Heading, heading_of
from canon.values.items import Item, item_of, may_hold_item
from canon.values.pairs import is_pair, pairs_hold_value
from canon.values.tags import Region, attributes_of, element_of, is_personal, regions_of, tag_kind

_DIGITS = re.compile(r"\d+")
_HEADER = re.compile(r"[A-Z][A-Za-z-]*(?: [a-z]+)?: \S")  # the lines of a letter's or a record's head


@dataclass(frozen=True, slots=True)
class Passage:
    """`text[start:stop]`, which ends without a line end."""

    start: int
    stop: int
    first: int  # lines
    last: int
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stay:
    """A value that stays where it is: it is part of a sentence, or of content."""

    offset: int
    stop: int
    kind: str
    guarded: bool


@dataclass(slots=True)
class _Text:
    text: str
    lines: Sequence[Line]
    strings: list[str]
    items: list[Item | None]
    moves: list[bool]
    weak: list[bool]
    kinds: dict[int, str] = field(default_factory=dict)
    stays: list[Stay] = field(default_factory=list)


def may_hold_passage(text: str) -> bool:
    """A cheap look; False: `passages_of` finds nothing."""
    return any(map(may_hold_item, text.split("\n"))) or "<" in text


def passages_of(text: str, lines: Sequence[Line]) -> tuple[list[Passage], list[Stay]]:
    """In the order in which they stand. Takes time linear in the text."""
    found = _Text(text, lines, [line.of(text) for line in lines], [], [], [])
    regions = regions_of(found.strings, [line.guard not in (None, "tagged") for line in lines])
    around = _around(regions, len(lines))
    _classify(found, regions, around)
    _mark_titled_values(found)
    for at in mark_git_blocks(found.strings, [_may_leave(line, around[at]) for at, line in enumerate(lines)]):
        found.moves[at] = True
        found.kinds.setdefault(at, "git status")
    _drop_records(found)
    _promote_paragraphs(found)
    _promote_blocks(found, regions)
    _promote_edges(found)
    _mark_headings(found)
    _mark_regions(found, regions)
    return _runs(found), found.stays


def _around(regions: Sequence[Region], count: int) -> list[tuple[Region, ...]]:
    """The regions around each line, its own tags' not among them."""
    around: list[tuple[Region, ...]] = [()] * count
    for region in regions:
        for at in range(region.first + 1, region.last):
            around[at] = (*around[at], region) if len(around[at]) < 8 else around[at]
    return around


def _may_leave(line: Line, around: tuple[Region, ...]) -> bool:
    if line.guard == "tagged" and not around:
        return False
    return line.guard in (None, "tagged", "indent") and all(region.kind != "content" for region in around)


def _classify(found: _Text, regions: Sequence[Region], around: Sequence[tuple[Region, ...]]) -> None:
    for at, line in enumerate(found.lines):
        string = found.strings[at]
        item = _item(string, any(region.personal for region in around[at]))
        whole = item is not None and item.whole
        free = (_may_leave(line, around[at]) and line.guard != "indent") or _is_lone_row(found, at)
        found.items.append(item if whole else None)
        found.moves.append(bool(item and whole and free and item.sure))
        found.weak.append(bool(item and whole and free and not found.moves[at]))
        if item and found.moves[at]:
            found.kinds[at] = item.kind
        elif item and item.sure and item.labelled:
            _, start, stop = item.values[0]
            found.stays.append(Stay(line.start + start, line.start + stop, item.kind, not free))


def _item(string: str, personal: bool) -> Item | None:
    if "<" in string:
        return _element_item(string)
    if may_hold_item(string) and (item := item_of(string)) is not None and (item.whole or not personal):
        return item
    if personal and is_pair(string):
        return Item(0, (("state", 0, len(string)),), True, False, True)
    return None


def _element_item(string: str) -> Item | None:
    """An element in one line, whose name is the label of its text: `<date>2030-09-05</date>`."""
    if element := element_of(string):
        name, inner = element
        pairs = [(name, inner)]
        if is_personal(name) and (kind := pairs_hold_value(inner)):
            return Item(0, ((kind, 0, len(string)),), True, True, True)
    elif attributes := attributes_of(string):
        name, pairs = attributes
        pairs = [(f"{name}_{label}", value) for label, value in pairs]
    else:
        return None
    if tag_kind(name) == "content":
        return None
    items = [item_of(f"{_spaced(label)}: {value.strip()}") for label, value in pairs]
    sure = [item for item in items if item and item.whole and item.sure]
    if not sure or not (len(sure) == len(pairs) or tag_kind(name) == "state"):
        return None
    return Item(0, ((sure[0].kind, 0, len(string)),), True, True, True)


def _spaced(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").replace("-", " ")


def _is_lone_row(found: _Text, at: int) -> bool:
    """Values between bars look like a row of a table, but a table has more than one."""
    if found.lines[at].guard != "table" or found.strings[at].lstrip()[:1] == "|":
        return False
    return all(
        found.lines[near].guard != "table" for near in (at - 1, at + 1) if 0 <= near < len(found.lines)
    )


def _mark_titled_values(found: _Text) -> None:
    """A value in the line below its label: `## Current time`, `2030-02-06 10:31`."""
    for at, string in enumerate(found.strings):
        if found.moves[at] or found.lines[at].guard not in (None, "tagged"):
            continue
        heading = heading_of(string)
        below = _next(found, at) if heading else None
        if heading is None or below is None or below - at > 2 or found.moves[below]:
            continue
        item = item_of(f"{heading.title}: {found.strings[below].strip()}")
        if item and item.whole and item.sure and found.lines[below].guard in (None, "tagged"):
            alone = below + 1 == len(found.lines) or not found.strings[below + 1].strip() or heading.marked
            if alone:
                found.moves[at : below + 1] = [True] * (below + 1 - at)
                found.kinds[at] = item.kind


def _next(found: _Text, at: int) -> int | None:
    """The next line that is not blank."""
    return next(
        (each for each in range(at + 1, min(at + 8, len(found.strings))) if found.strings[each].strip()), None
    )


def _drop_records(found: _Text) -> None:
    """The same label over different values is a list of records or steps, not the state of the moment."""
    seen: dict[tuple[object, ...], list[int]] = {}
    for at, item in enumerate(found.items):
        if item is not None and item.kind != "state" and item.labelled:
            seen.setdefault(_record_key(item, found.strings[at]), []).append(at)
    for places in seen.values():
        if len({found.strings[at].strip() for at in places}) > 1:
            for at in places:
                _stay(found, at)


def _record_key(item: Item, string: str) -> tuple[object, ...]:
    shape = _DIGITS.sub("0", string.strip()) if item.kind == "counter" else item.kind
    return (item.words, shape)


def _stay(found: _Text, at: int) -> None:
    item, line = found.items[at], found.lines[at]
    if item is not None and found.moves[at]:
        _, start, stop = item.values[0]
        found.stays.append(Stay(line.start + start, line.start + stop, item.kind, True))
        found.kinds.pop(at, None)
    found.moves[at] = found.weak[at] = False


def _promote_paragraphs(found: _Text) -> None:
    """Lines that could be of the moment are, in a paragraph where each line is and one is for sure."""
    for first, stop in _paragraphs(found):
        rows = [at for at in range(first, stop) if not _is_title(found, at)]
        if any(found.moves[at] for at in rows) and all(found.moves[at] or found.weak[at] for at in rows):
            for at in rows:
                _move(found, at)


def _promote_blocks(found: _Text, regions: Sequence[Region]) -> None:
    """The same inside the tags of a block of state; where the block is the user's or the session's, none need be
    for sure."""
    for region in regions:
        rows = [at for at in range(region.first + 1, region.last) if found.strings[at].strip()]
        sure = region.personal or any(found.moves[at] for at in rows)
        if region.kind == "state" and rows and sure and all(found.moves[at] or found.weak[at] for at in rows):
            for at in rows:
                _move(found, at)


def _is_title(found: _Text, at: int) -> bool:
    heading = heading_of(found.strings[at])
    return heading is not None and not found.moves[at]


def _paragraphs(found: _Text) -> list[tuple[int, int]]:
    paragraphs, first = [], -1
    for at in range(len(found.strings) + 1):
        blank = at == len(found.strings) or not found.strings[at].strip()
        if not blank and first < 0:
            first = at
        elif blank and first >= 0:
            paragraphs.append((first, at))
            first = -1
    return paragraphs


def _promote_edges(found: _Text) -> None:
    """A time of day, a counter or a minted id that is the first or the last line of the text."""
    full = [at for at, string in enumerate(found.strings) if string.strip()]
    for at in {full[0], full[-1]} if full else ():
        item = found.items[at]
        if item is None or not found.weak[at] or not (_is_edge_kind(item)):
            continue
        near = (at - 1, at + 1)
        if not any(_HEADER.match(found.strings[each]) for each in near if 0 <= each < len(found.strings)):
            _move(found, at)


def _is_edge_kind(item: Item) -> bool:
    if item.kind == "counter":
        return True
    if item.kind in ("uuid", "ulid", "ksuid", "traceparent"):
        return True
    return item.kind == "clock" and {"start", "started", "opened", "began"}.isdisjoint(item.words)


def _move(found: _Text, at: int) -> None:
    item = found.items[at]
    if not found.moves[at] and item:
        found.moves[at], found.weak[at] = True, False
        found.kinds[at] = item.kind


def _mark_headings(found: _Text) -> None:
    """A heading goes along where nothing is left for it to head."""
    headings = [heading_of(string) for string in found.strings]
    for at in range(len(found.strings) - 1, -1, -1):
        heading = headings[at]
        if heading is None or found.moves[at] or found.lines[at].guard not in (None, "tagged"):
            continue
        below = _next(found, at)
        if below is None or not found.moves[below] or (not heading.marked and below != at + 1):
            continue
        stop = _end_of_section(found, headings, heading, at, below)
        if all(found.moves[each] or not found.strings[each].strip() for each in range(at + 1, stop)):
            found.moves[at] = True


def _end_of_section(
    found: _Text, headings: Sequence[Heading | None], heading: Heading, at: int, below: int
) -> int:
    """Behind what a heading heads: its paragraph, or, of a title in Markdown, all up to the next title."""
    for each in range(below, len(found.strings)):
        if not found.strings[each].strip() and (not heading.marked or heading.state):
            return each
        other = headings[each]
        if other is not None and heading.marked and other.marked and other.level <= heading.level:
            return each
        if found.strings[each].lstrip().startswith("</") and not found.moves[each]:
            return each
    return len(found.strings)


def _mark_regions(found: _Text, regions: Sequence[Region]) -> None:
    """Tags go along where nothing is left between them."""
    for region in regions:
        inside = [at for at in range(region.first + 1, region.last) if found.strings[at].strip()]
        if inside and all(found.moves[at] for at in inside):
            found.moves[region.first] = found.moves[region.last] = True


def _runs(found: _Text) -> list[Passage]:
    """Neighbouring lines that leave, as one passage; blank lines between them go along."""
    passages: list[Passage] = []
    at, count = 0, len(found.strings)
    while at < count:
        if not found.moves[at] or not found.strings[at].strip():
            at += 1
            continue
        last, each = at, at + 1
        while each < count and (found.moves[each] or not found.strings[each].strip()):
            if found.strings[each].strip():
                last = each
            each += 1
        kinds = dict.fromkeys(found.kinds[line] for line in range(at, last + 1) if line in found.kinds)
        passages.append(Passage(found.lines[at].start, found.lines[last].end, at, last, tuple(kinds)))
        at = last + 1
    return passages
