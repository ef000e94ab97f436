"""Dates and times of day in the forms that people and programs write, whatever their language.

A value is read word by word: it is a date or a time as long as every word, number and mark of it can belong to one. So
any order of weekday, day, month, year, time and zone is understood, and a single word from elsewhere ends the value.
"""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from canon.values.clock_words import UNSPACED, WORDS

# instant  a time of day, or seconds since 1970: changes while people wait
# date     a whole date, a week, a month or a weekday: changes daily or more slowly
# range    two of them: opening hours, or the same instant in two places
Precision: TypeAlias = Literal["instant", "date", "range"]

_LONGEST = 160  # characters of one date and time, with every name in full
_TOKEN = re.compile(
    r"""
    (?P<iso>\d{4}-\d{2}-\d{2}(?:[T_ ]?\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?)?)(?!\d)
  | (?P<compact>\d{8}T\d{4,6})(?!\d)
  | (?P<week>\d{4}-?W\d{1,2}(?:-\d)?)(?!\d)
  | (?P<time>\d{1,2}(?::|h(?=\d))\d{2}(?::\d{2}(?:[.,:]\d{1,9})?)?)(?!\d)
  | (?P<date>\d{1,4}(?P<mark>[./-])\d{1,2}(?P=mark)\d{2,4})(?!\d)
  | (?P<era_date>[RHSMT]\d{1,2}[./]\d{1,2}[./]\d{1,2})(?!\d)
  | (?P<epoch>\d{10}(?:\.\d{1,9}|\d{3}|\d{6}|\d{9})?)(?![\d.])
  | (?P<offset>(?:UTC|GMT)?[+\u2212-]\d{1,2}(?::?\d{2})?)(?![\d:])
  | (?P<area>(?:Africa|America|Antarctica|Asia|Atlantic|Australia|Europe|Indian|Pacific|Etc)/[A-Za-z_/+-]+)
  | (?P<half>[ap]\.\s?m\.)(?!\w)
  | (?P<number>\d{1,4})(?:st|nd|rd|th|er|º|ª|\.)?(?![\d])
  | (?P<word>[^\W\d_]+(?:['’.][^\W\d_]+)*)
  | (?P<space>\s+)
  | (?P<punct>[,.()\[\]/|·•@~–\-（）【】，\u3000])
    """,
    re.VERBOSE,
)
# A year before computers had clocks, unless it is a time such as `1530 hours`; `15:30-1545` is none either.
_LONG_AGO = re.compile(
    r"(?<![\d:.+-])1[5-9]\d\d(?=[-/.年년,;)\s]|\Z)(?!\s?(?:h|hrs|hours|uhr|z|utc)\b)", re.IGNORECASE
)
_UNSPACED = re.compile("|".join(map(re.escape, sorted(UNSPACED, key=len, reverse=True))))
_CHINESE_NUMBER = re.compile("[〇零一二两兩三四五六七八九十廿卅元]{1,4}")
_WIDE = ("\u2e80", "\ud7ff")  # from the first CJK radical to the last Hangul syllable


@dataclass(slots=True)
class _Seen:
    """What a value has had so far."""

    numbers: int = 0
    months: int = 0
    weekdays: int = 0
    short_weekdays: int = 0  # such as `do` and `so`, which are words as well
    units: int = 0
    parts: int = 0
    times: int = 0
    dates: int = 0
    halves: int = 0

    def precision(self) -> Precision | None:
        if self.times > 1 or self.weekdays + self.short_weekdays > 1:
            return "range"
        if self.times or (self.numbers and (self.halves or self.units)):
            return "instant"
        if self.dates or self.weekdays:
            return "date"
        return "date" if self.numbers and (self.months or self.parts or self.short_weekdays) else None


def clock_at(text: str, start: int, stop: int) -> tuple[int, Precision] | None:
    """The end of the date or time that begins at `start`, blanks and marks behind it left out, and its precision."""
    seen, at, end = _Seen(), start, start
    stop = min(stop, start + _LONGEST)
    while at < stop:
        step = _step(text, at, stop, seen)
        if step is None:
            break
        at, counts = step
        if counts:
            end = at
    precision = seen.precision() if end > start else None
    if precision and _LONG_AGO.search(text, start, end):
        return None
    return (end, precision) if precision else None


def _step(text: str, at: int, stop: int, seen: _Seen) -> tuple[int, bool] | None:
    """The next place, and whether what was passed can end a value; None: it belongs to no date or time."""
    if _WIDE[0] <= text[at] <= _WIDE[1]:
        return _unspaced(text, at, stop, seen)
    found = _TOKEN.match(text, at, stop)
    if found is None:
        return None
    kind = found.lastgroup or ""
    if kind == "word":
        return _word(found, seen)
    if kind in ("space", "punct"):
        return found.end(), found[0] in ")]）】"
    if kind == "mark":
        kind = "date"
    if kind == "half":
        seen.halves += 1
        return found.end(), True
    return (found.end(), True) if _number(kind, found[0], seen) else None


def _number(kind: str, text: str, seen: _Seen) -> bool:
    match kind:
        case "iso":
            seen.dates += 1
            seen.times += len(text) > len("2030-01-01")
            return "00" < text[5:7] <= "12" and text[8:10] <= "31"
        case "compact" | "epoch":
            seen.dates += 1
            seen.times += 1
            return kind == "compact" or text[0] in "12"
        case "week" | "date" | "era_date":
            seen.dates += 1
        case "time":
            seen.times += 1
            return int(re.split("[:h]", text)[0]) < 25
        case "offset" if text[0] != "+" and seen.times and not seen.dates:
            seen.times += 1  # 9:00-17:00 without a date are two times of day
        case "number":
            seen.numbers += 1
            return seen.numbers <= 6
    return True


def _word(found: re.Match[str], seen: _Seen) -> tuple[int, bool] | None:
    word = found[0].lower().replace("’", "'")
    kind = WORDS.get(word) or WORDS.get(word.rstrip("."))
    if kind is None or found.string[found.end() : found.end() + 1] in (":", "="):
        return None  # what follows a colon has a label of its own
    if kind == "weekday" and len(word) < 4:
        seen.short_weekdays += 1
    else:
        _count(kind, seen)
    return found.end(), kind != "filler"


def _unspaced(text: str, at: int, stop: int, seen: _Seen) -> tuple[int, bool] | None:
    if found := _UNSPACED.match(text, at, stop):
        _count(UNSPACED[found[0]], seen)
        return found.end(), True
    if found := _CHINESE_NUMBER.match(text, at, stop):
        seen.numbers += 1
        return found.end(), True
    return None


def _count(kind: str, seen: _Seen) -> None:
    match kind:
        case "weekday":
            seen.weekdays += 1
        case "month":
            seen.months += 1
        case "unit":
            seen.units += 1
        case "half":
            seen.halves += 1
        case "part":
            seen.parts += 1
