"""A text on the way to being sorted: which of its lines leave, which could, and which stay."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from canon.text import Line
from canon.values.announcements import PERSONA
from canon.values.handed_over import is_fiction, mark_handed_over, paragraphs_of
from canon.values.headings import Heading, heading_of
from canon.values.items import Item, item_of
from canon.values.pairs import is_pair, pairs_hold_value
from canon.values.screen import may_hold_item
from canon.values.tags import Regions, attributes_of, element_of, is_personal, tag_kind

_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|[_-]")


_SCENIC = frozenset(
    ("clock", "date", "name", "user", "locale", "time zone", "coordinates", "counter")
)  # kinds


@dataclass(frozen=True, slots=True)
class Stay:
    """A value that stays where it is: it is part of a sentence, or of content."""

    offset: int
    stop: int
    kind: str
    guarded: bool


class Sheet:
    """The lines of a text with what was found in each. Every list has an entry for each line."""

    def __init__(self, text: str, lines: Sequence[Line]) -> None:
        self.lines = lines
        self.strings = [line.of(text) for line in lines]
        self.blank = [not string.strip() for string in self.strings]
        self.regions = Regions(self.strings, [line.guard not in (None, "tagged") for line in lines])
        self.headings: list[Heading | None] = [heading_of(string) for string in self.strings]
        self.headed = _headed(
            self.headings, self.blank
        )  # by which line, of those that announce state; -1: none
        self.shown = _shown(self.headings, self.blank)  # whether each is content that a line announces
        mark_handed_over(self.strings, self.blank, self.headings, self.shown)
        self.paragraphs = paragraphs_of(self.blank)
        self.fiction = is_fiction(text)  # clocks and places are a scene's
        self.items: list[Item | None] = [None] * len(lines)  # of lines that are nothing but an item
        self.moves = [False] * len(lines)
        self.weak = [False] * len(lines)  # leaves if its surroundings say so
        self.kinds: dict[int, str] = {}  # of lines that leave
        self.stays: list[Stay] = []
        self._read: dict[tuple[str, bool], Item | None] = {}  # lines that were read already
        for at in range(len(lines)):
            if not self.blank[at]:
                self._classify(at)

    def __len__(self) -> int:
        return len(self.lines)

    def plain(self, at: int) -> bool:
        """Whether the line is prose, be it inside tags."""
        return self.lines[at].guard in (None, "tagged") and self.free(at)

    def free(self, at: int) -> bool:
        """Whether the line may leave at all, if it is part of a block that does."""
        guard, around = self.lines[at].guard, self.regions.around(at)
        if self.shown[at] or (guard == "tagged" and not around):
            return False
        return guard in (None, "tagged", "indent") and all(region.kind != "content" for region in around)

    def personal(self, at: int) -> bool:
        """Whether the line is in a block about the session or the user."""
        heading = self.headings[self.headed[at]] if self.headed[at] >= 0 else None
        return any(region.personal for region in self.regions.around(at)) or (
            heading is not None and heading.personal
        )

    def move(self, at: int, kind: str | None = None) -> None:
        item = self.items[at]
        self.moves[at], self.weak[at] = True, False
        if kind or item:
            self.kinds.setdefault(at, kind or item.kind)  # type: ignore[union-attr]

    def stay(self, at: int) -> None:
        """The line stays after all, and what it holds is reported if it would have left."""
        item = self.items[at]
        if item is not None and self.moves[at]:
            self._report(at, item, True)
        self.kinds.pop(at, None)
        self.moves[at] = self.weak[at] = False

    def below(self, at: int) -> int | None:
        """The next line that is not blank, if it is near."""
        near = range(at + 1, min(at + 4, len(self)))
        return next((each for each in near if not self.blank[each]), None)

    def rows(self, first: int, stop: int) -> list[int]:
        """The lines that are not blank."""
        return [at for at in range(first, stop) if not self.blank[at]]

    def _classify(self, at: int) -> None:
        string = self.strings[at]
        personal = self.personal(at)
        if (string, personal) not in self._read:
            self._read[string, personal] = _item(string, personal)
        item = self._read[string, personal]
        if item is None:
            return
        free = self.plain(at) or self._is_lone_row(at) or (personal and self.free(at))
        free = free and not self._is_of_scene(at, item)
        if item.whole:
            self.items[at] = item
            self.weak[at] = free and (item.kind != "name" or personal)  # a persona has a name as well
        if item.whole and item.sure and free:
            self.move(at)
        elif item.sure and item.labelled:
            self._report(at, item, not free)

    def _report(self, at: int, item: Item, guarded: bool) -> None:
        _, start, stop = item.values[0]
        offset = self.lines[at].start
        self.stays.append(Stay(offset + start, offset + stop, item.kind, guarded))

    def _is_of_scene(self, at: int, item: Item) -> bool:
        """Where a text sets a scene, only its first and last line and blocks of state tell of the real moment."""
        if not self.fiction or item.kind not in _SCENIC or self.regions.around(at) or self.headed[at] >= 0:
            return False
        return at not in (self.paragraphs[0][0], self.paragraphs[-1][1] - 1)

    def _is_lone_row(self, at: int) -> bool:
        """Values between bars look like a row of a table, but a table has more than one."""
        if self.lines[at].guard != "table" or self.shown[at] or self.strings[at].lstrip()[:1] == "|":
            return False
        near = (each for each in (at - 1, at + 1) if 0 <= each < len(self))
        return all(self.lines[each].guard != "table" for each in near)


def _headed(headings: Sequence[Heading | None], blank: Sequence[bool]) -> list[int]:
    """For each line, the title that announces it as state: it reaches to the next blank line."""
    headed, by = [], -1
    for at, heading in enumerate(headings):
        if heading is not None:
            by = at if heading.state else -1
            headed.append(-1)
            continue
        if blank[at] and by != at - 1:
            by = -1
        headed.append(-1 if blank[at] else by)
    return headed


def _shown(headings: Sequence[Heading | None], blank: Sequence[bool]) -> list[bool]:
    """Below a title in Markdown up to the next of its level, below a few words with a colon up to a blank line."""
    shown: list[bool] = []
    level, marked = 0, False  # of the title that announces content; 0: none does
    for at, heading in enumerate(headings):
        if level and (heading.level <= level if heading is not None else blank[at] and not marked):
            level = 0
        shown.append(level > 0)
        if heading is not None and heading.content and not level:
            level, marked = heading.level, heading.marked
    return shown


def _item(string: str, personal: bool) -> Item | None:
    if PERSONA.search(string[:80]):
        return None  # the model's name is no value of the moment, whatever else the line says
    if "<" in string and "<!--" not in string:
        return element_item(string)
    label, colon, rest = string.partition(":")
    if colon and (title := heading_of(f"{label}:")) and title.personal and (kind := pairs_hold_value(rest)):
        return _whole(kind, string)
    if may_hold_item(string) and (item := item_of(string)) is not None and (item.whole or not personal):
        return item
    if personal and "|" in string and (kind := pairs_hold_value(string)):
        return _whole(kind, string)
    if personal and is_pair(string):
        return Item(0, (("state", 0, len(string)),), True, False, True)
    return None


def element_item(string: str) -> Item | None:
    """An element in one line, whose name is the label of its text: `<date>2030-09-05</date>`."""
    if element := element_of(string):
        name, inner = element
        pairs = [(name, inner)]
        if is_personal(name) and (kind := pairs_hold_value(inner)):
            return _whole(kind, string)
    elif attributes := attributes_of(string):
        name, pairs = attributes
        pairs = [(f"{name}_{label}", value) for label, value in pairs]
    else:
        return None
    if tag_kind(name) == "content":
        return None
    if element and (inside := item_of(inner.strip())) and inside.whole and inside.sure:
        return _whole(inside.kind, string)
    items = [item_of(f"{_CAMEL.sub(' ', label)}: {value.strip()}") for label, value in pairs]
    sure = [item for item in items if item and item.whole and item.sure]
    if not sure and all(item and item.whole for item in items):
        kind = items[0].kind if element and items[0] else "state"
        return _whole(kind, string)._replace(sure=False)
    if not sure or not (len(sure) == len(pairs) or tag_kind(name) == "state"):
        return None
    return _whole(sure[0].kind, string)


def _whole(kind: str, string: str) -> Item:
    return Item(0, ((kind, 0, len(string)),), True, True, True, (string.split(">")[0].split()[0],))
