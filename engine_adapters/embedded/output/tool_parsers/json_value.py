"""Where a JSON value ends, found while it is written."""

import re
from dataclasses import dataclass
from typing import Literal

_LITERAL_END = re.compile(r"[\s,}\]<;]")


@dataclass(frozen=True, slots=True)
class Scan:
    """`text[:end]` belongs to the value.

    `more`: the value goes on; what follows `end` may be the start of the end tag and must be pushed again.
    `value`: the value ends there. `tag`: the end tag begins there, and cuts the value off.
    """

    end: int
    found: Literal["more", "value", "tag"]


class ValueScanner:
    """Finds the end of one value by its strings and brackets alone; constant work a character, any nesting.

    A string may hold the text of the end tag. But JSON strings hold no raw line breaks or other control
    characters, so once one does, the model forgot to close it or to escape, and the end tag counts inside
    it, too.

    Args:
        end_tag: what cuts off a value that is never closed; "": nothing does.
    """

    def __init__(self, end_tag: str = "") -> None:
        self._tag = end_tag
        first = re.escape(end_tag[:1])
        self._outside = re.compile(f'["{{}}\\[\\]{first}]')
        self._inside = re.compile(f'["\\\\\\x00-\\x1f{first}]')
        self._begun = False
        self._literal = False
        self._in_string = False
        self._escaped = False
        self._broken = False  # the string that is open has raw control characters
        self._depth = 0

    def scan(self, text: str, at: int = 0) -> Scan:
        """Take the value's next text, `text[at:]`; the first one begins with the value's first character."""
        if not self._begun and at < len(text):
            self._begun = True
            self._literal = text[at] not in '"{['
        if self._literal:
            end = _LITERAL_END.search(text, at)
            return Scan(len(text), "more") if end is None else Scan(end.start(), "value")
        while at < len(text):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            significant = (self._inside if self._in_string else self._outside).search(text, at)
            if significant is None:
                break
            at = significant.end()
            if self._tag and significant[0] == self._tag[0]:
                tag = self._at_tag(text, significant.start())
                if tag is not None:
                    return tag
            elif self._step(significant[0]):
                return Scan(at, "value")
        return Scan(len(text), "more")

    def _at_tag(self, text: str, at: int) -> Scan | None:
        if self._in_string and not self._broken:
            return None
        candidate = text[at : at + len(self._tag)]
        if candidate == self._tag:
            return Scan(at, "tag")
        return Scan(at, "more") if self._tag.startswith(candidate) else None

    def _step(self, char: str) -> bool:
        """Take one significant character; True where it ends the value."""
        if char == '"':
            self._in_string = not self._in_string
            self._broken = False
        elif char == "\\":
            self._escaped = True
            return False
        elif self._in_string:
            self._broken = True
        else:
            self._depth += 1 if char in "{[" else -1
        return self._depth <= 0 and not self._in_string
