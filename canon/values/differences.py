"""What the differing part of two texts is, by name."""

import re
from collections.abc import Iterator

from canon.values.clocks import clock_at
from canon.values.ids import minted_id
from canon.values.items import LONGEST, item_of
from canon.values.shapes import ABSOLUTE_PATH, ADDRESS, COORDINATES, MAIL, TEMPORARY_PATH, URL

_AROUND = 200  # characters around a difference that are looked at, within its line
_STARTS = re.compile(r"(?<![\w/.:-])[\w/~$+\u2212-]")
_AGE = re.compile(
    r"\d{1,5} ?(?:s|m|h|d|w|secs?|mins?|hrs?|(?:second|minute|hour|day|week|month|year)s?)(?: ago\b|(?=[\])]))"
    r"|(?:vor|il y a|hace|há) (?:\d{1,5}|einem|einer|une?|uno|uma?) \w{1,12}"
    r"|(?:\d{1,5}|an?|one|two|three) (?:second|minute|hour|day|week|month|year)s? ago\b"
    r"|\d{1,5} \w{1,12} (?:назад|fa|önce|geleden|sedan|temu)\b"
    r"|\b(?:just now|yesterday|(?:vor)?gestern|hier|ayer|ieri)\b"
    r"|\d{1,5} ?(?:秒|分|分钟|小时|時間|天|日|週間|周|个月|か月|年)(?:前|以前|之前)"
    r"|\d{1,5} ?(?:초|분|시간|일|주|개월|년) ?전",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[+-]?\d[\d.,_]*%?")
_TOKEN = re.compile(r"[\w+/=~-]{12,}")


def classify(before: str, after: str) -> str | None:
    """The kind of value that two texts differ in: `clock`, `date`, `uuid`, `path`, `counter`, `relative time`, ...

    None: they are equal, differ in more than one line, or in something that is no such value.
    """
    spans = _difference(before, after)
    if spans is None:
        return None
    kinds = [_kinds(text, start, stop) for text, (start, stop) in zip((before, after), spans, strict=True)]
    return next((kind for kind in kinds[0] if kind in kinds[1]), None)


def _difference(before: str, after: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """What is left when the common beginning and end are taken off; None: nothing, or more than one line."""
    if before == after:
        return None
    start = _agreeing(before, after)
    end = _agreeing(before[start:][::-1], after[start:][::-1])
    spans = (start, len(before) - end), (start, len(after) - end)
    if any("\n" in text[a:b] for text, (a, b) in zip((before, after), spans, strict=True)):
        return None
    return spans


def _agreeing(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning, found by halves."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _kinds(text: str, start: int, stop: int) -> list[str]:
    """Kinds of all values in the line that cover `text[start:stop]`, the surest first."""
    begin = max(text.rfind("\n", 0, start) + 1, start - _AROUND)
    end = text.find("\n", stop)
    end = min(len(text) if end < 0 else end, stop + _AROUND)
    kinds: list[str] = []
    if end - begin <= LONGEST and (item := item_of(text, begin, end)):
        kinds += [kind for kind, a, b in item.values if a <= start and stop <= b]
    kinds += [kind for kind, a, b in _values(text, begin, end) if a <= start and stop <= b]
    return kinds


def _values(text: str, begin: int, end: int) -> Iterator[tuple[str, int, int]]:
    for found in _AGE.finditer(text, begin, end):
        yield "relative time", found.start(), found.end()
    for found in _STARTS.finditer(text, begin, end):
        yield from _values_at(text, found.start(), end)
    for pattern, kind in ((_TOKEN, "id"), (_NUMBER, "number")):
        for found in pattern.finditer(text, begin, end):
            if any(char.isdigit() for char in found[0]):
                yield kind, found.start(), found.end()


def _values_at(text: str, at: int, end: int) -> Iterator[tuple[str, int, int]]:
    if minted := minted_id(text, at, end):
        yield minted.kind, at, minted.end
    if found := URL.match(text, at, end):
        yield "url", at, found.end()
    if found := ABSOLUTE_PATH.match(text, at, end):
        yield "temporary path" if TEMPORARY_PATH.match(found[0]) else "path", at, found.end()
    for pattern, kind in ((ADDRESS, "address"), (COORDINATES, "coordinates"), (MAIL, "mail")):
        if (found := pattern.match(text, at, end)) and "." in found[0]:
            yield kind, at, found.end()
    if (text[at].isalnum()) and (clock := clock_at(text, at, end)):
        yield "date" if clock[1] == "date" else "clock", at, clock[0]
