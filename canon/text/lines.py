"""The lines of a text, each with what guards it."""

import re
from typing import NamedTuple

from canon.text.guard import Guard
from canon.text.guards import guards_of

_LINE = re.compile(r"[^\r\n]*")


class Line(NamedTuple):
    """`text[start:end]` is the line, `text[end:stop]` its line end: LF, CRLF, CR, or nothing after the last line."""

    start: int
    end: int
    stop: int
    guard: Guard | None

    def of(self, text: str) -> str:
        return text[self.start : self.end]


def lines_of(text: str) -> list[Line]:
    """All lines in order; a text that ends in a line end has an empty last line. Takes time linear in the text.

    A line that only closes a region (a closing fence, a closing tag) is not guarded: after it there is prose again.
    """
    spans = _spans(text)
    guards = guards_of([text[start:end] for start, end, _ in spans])
    return [Line(*span, guard) for span, guard in zip(spans, guards, strict=True)]


def _spans(text: str) -> list[tuple[int, int, int]]:
    spans, start = [], 0
    while True:
        found = _LINE.match(text, start)
        end = found.end() if found else start
        stop = end + (2 if text.startswith("\r\n", end) else 1) if end < len(text) else end
        spans.append((start, end, stop))
        if stop == end:
            return spans
        start = stop
