"""Tags of a prompt's own, such as `<env>`: which lines they enclose, and what may leave them."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from canon.values.words import word_set

# state    holds what is so at the moment, for this session or this user: `<env>`, `<user_context>`
# content  holds a text, an example or records, which keep every line
# other    anything else, `<instructions>` for example
TagKind: TypeAlias = Literal["state", "content", "other"]

_DEEPEST = 8
_OPEN = re.compile(r"[ \t]*<([A-Za-z_][\w.:-]{0,63})(?:[ \t][^<>]{0,200})?>[ \t]*$")
_CLOSE = re.compile(r"[ \t]*</([A-Za-z_][\w.:-]{0,63})[ \t]*>[ \t]*$")
_ELEMENT = re.compile(
    r"[ \t]*<([A-Za-z_][\w.:-]{0,63})(?:[ \t][^<>]{0,200})?>([^<>\n]{1,400})</\1[ \t]*>[ \t]*$"
)
_EMPTY = re.compile(
    r"[ \t]*<([A-Za-z_][\w.:-]{0,63})"
    r"((?:[ \t]+[\w.:-]{1,64}[ \t]?=[ \t]?(?:\"[^\"<>]{0,200}\"|'[^'<>]{0,200}')){1,12})[ \t]*/>[ \t]*$"
)
_ATTRIBUTE = re.compile(r"([\w.:-]{1,64})[ \t]?=[ \t]?(?:\"([^\"<>]*)\"|'([^'<>]*)')")
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")

_STATE = word_set(
    """
env environment context ctx metadata meta info information session user runtime state status time date
datetime clock now timestamp git workspace cwd device location timezone locale host machine sandbox turn
budget usage progress request client browser platform umgebung kontext contexte contexto entorno
environnement sesion nutzer
"""
)
# Whose pairs of key and value are all about the session or the user, whatever the key.
_PERSONAL = word_set(
    """
env environment session user runtime device browser sandbox workspace umgebung nutzer environnement
sesion
"""
)
_CONTENT = word_set(
    """
example examples sample samples document documents doc docs file files text content article email mail
letter transcript conversation history log logs record records ticket tickets message messages code diff
quote output outputs result results table contract input inputs question chat memories journal notes
note page pages source sources snippet template templates format schema story book case cases event
events entry entries schedule calendar appointment order orders invoice invoices changelog review
reviews search tool tools thinking answer response data dataset article knowledge faq policy report
query scenario scene persona character plot puzzle problem exercise
beispiel beispiele exemple ejemplo
"""
)


@dataclass(frozen=True, slots=True)
class Region:
    """From the line with an opening tag to the line with its closing tag, nothing else being in these two lines."""

    first: int
    last: int
    name: str
    kind: TagKind

    @property
    def personal(self) -> bool:
        return is_personal(self.name)


def is_personal(name: str) -> bool:
    """Whether a tag of this name holds nothing but facts of the session or the user."""
    return tag_kind(name) == "state" and not _PERSONAL.isdisjoint(_words(name))


def _words(name: str) -> set[str]:
    return {word.lower() for word in _NAME_WORD.findall(name)}


def tag_kind(name: str) -> TagKind:
    words = _words(name)
    if not _CONTENT.isdisjoint(words):
        return "content"
    return "state" if not _STATE.isdisjoint(words) else "other"


def opens_region(line: str) -> bool:
    """Whether the line is an opening tag of a block of state."""
    found = _OPEN.match(line)
    return found is not None and tag_kind(found[1]) == "state"


class Regions:
    """The regions of a text, inner ones first, and which of them are around each line."""

    def __init__(self, lines: Sequence[str], skipped: Sequence[bool]) -> None:
        """Lines that are skipped, in a fence for example, hold no tags."""
        self.all = _regions_of(lines, skipped)
        self._around: list[tuple[Region, ...]] = [()] * len(lines)
        for region in self.all:
            for at in range(region.first + 1, region.last):
                self._around[at] = (*self._around[at], region)

    def around(self, line: int) -> tuple[Region, ...]:
        """The regions that the line is in, from the inside out; its own tags' is not among them."""
        return self._around[line]


def _regions_of(lines: Sequence[str], skipped: Sequence[bool]) -> list[Region]:
    regions: list[Region] = []
    opened: list[tuple[str, int]] = []
    names: Counter[str] = Counter()
    for at, line in enumerate(lines):
        if skipped[at] or "<" not in line:
            continue
        if found := _OPEN.match(line):
            opened.append((found[1], at))
            names[found[1]] += 1
        elif (found := _CLOSE.match(line)) and names[found[1]]:
            name = ""
            while name != found[1]:
                name, first = opened.pop()
                names[name] -= 1
            # What is nested deeper than people nest is data; so is all that is in it.
            kind = tag_kind(name) if len(opened) < _DEEPEST else "content"
            if len(opened) <= _DEEPEST:
                regions.append(Region(first, at, name, kind))
    return regions


def element_of(line: str) -> tuple[str, str] | None:
    """Name and text of a line that is one element, `<date>2030-09-05</date>`."""
    found = _ELEMENT.match(line)
    return (found[1], found[2]) if found else None


def attributes_of(line: str) -> tuple[str, list[tuple[str, str]]] | None:
    """Name and attributes of a line that is one empty element, `<session id="4f2a" started="10:31"/>`."""
    found = _EMPTY.match(line)
    if found is None:
        return None
    return found[1], [(each[1], each[2] or each[3] or "") for each in _ATTRIBUTE.finditer(found[2])]
