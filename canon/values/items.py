"""A line that is nothing but values of the moment, each with its label: `Turn 3 of 9 | Current time: 10:31`."""

import re
from collections.abc import Callable
from typing import NamedTuple

from canon.values.clock_words import WORDS
from canon.values.clocks import clock_at
from canon.values.coordinates import coordinates_at
from canon.values.counters import counter_at
from canon.values.git import git_at
from canon.values.ids import id_at, minted_id
from canon.values.label_words import CLOCK, COORDINATES, FAMILIES, GIT, ID, LEXICON, PLACE, USER, ZONE
from canon.values.labels import (
    Label,
    label_at,
    starts_label,
)
from canon.values.places import place_at
from canon.values.shapes import URL
from canon.values.users import user_at, zone_at
from canon.values.value import Value
from canon.values.words import word_set

LONGEST = 400  # characters of a line that can be an item
_MOST_CLAUSES = 8
# A list mark, a sign, a bracket, and words such as `Note:`.
HEAD = re.compile(
    r"[ \t]*(?:(?:[-*•·+–]|#{1,6}|//|<!--)[ \t]+|[■◆●▼▶◇□▪][ \t]*)?[\u2600-\u27bf\U0001f300-\U0001faff\ufe0f\u200d \t]*"
    r"[*_`]*[\[(（【]?[*_`]*[ \t]*(?:(?:note|info|context|fyi|system|hinweis|nota|remarque)[*_]*:[*_]*[ \t]+)?",
    re.IGNORECASE,
)
_QUOTES = re.compile(r"[ \t*_`'\"“”‘’「『\[(<]*")
_TAIL = re.compile(r"[ \t.。!！;；,，)\]）】>*_`'\"“”‘’」』-]*$")
_CONNECTOR = re.compile(
    r"[ \t'\"`”*_)\]）】」]*(?:[.,;|·•，；、。/—–-]+[ \t]*)?"
    r"(?:(?:and|und|et|y|e|ed|en|och|i|和|と)[ \t]+)?(?:\([ \t]*)?"
)
_SENTENCE_END = re.compile(r"[.;|。；](?=[ \t])|,[ \t]")
_NOTE = re.compile(r"[ \t]*[(（]([^()（）\n]{1,60})[)）]")
_NOW = re.compile(
    r"[ \t]*,?[ \t]*(?:right now|now|today|jetzt|heute|maintenant|ahora|adesso|agora|nu|сейчас|当地时间|现在)(?!\w)",
    re.IGNORECASE,
)
_FORMAT = word_set("formatted according yyyy mm dd hh ss yy mmm iso format utc h m s")
_WORDS = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_TIME_VERBS = word_set("is it's ist est es son è sono é são jest är er は 是")
_TIME_PHRASES = frozenset((("as", "of"), ("son", "las"), ("sono", "le"), ("é",), ("são", "as")))
_JOINING = word_set("and it is at the et il est und es ist y son las e sono le à a um och er i и")
# Marks that say whose time it is, but not that it is the present one; a date without a time of day needs that.
_NOT_PRESENT = word_set(
    """
request message conversation session turn user user's users client started start began opened live real
system server timestamp zeitstempel horodatage
"""
)

_HOURS = re.compile(r"\d\s?[-–—]\s?\d{1,2}[:h.]\d\d")  # Today: 9:00-17:00
_NUMBER = re.compile(r"\d{1,4}(?!\w)")
_DIGIT = re.compile(r"\d")
_RECOGNIZERS: tuple[tuple[int, Callable[[str, int, int, Label], Value | None]], ...] = (
    (GIT, git_at),
    (ID, id_at),
    (COORDINATES, coordinates_at),
    (ZONE, zone_at),
    (PLACE, place_at),
    (USER, user_at),
)


class Item(NamedTuple):
    """What was recognized in one line."""

    start: int  # where its first label begins, behind the list mark
    values: tuple[tuple[str, int, int], ...]  # kind, start, end of each value
    whole: bool  # there is nothing else in the line
    sure: bool  # a label says that its value is of the moment
    labelled: bool  # False: a bare value
    words: tuple[str, ...] = ()  # of the first label

    @property
    def kind(self) -> str:
        return self.values[0][0]


def label_only(text: str) -> bool:
    """Whether a title says by itself that what stands below it is of the moment."""
    label = label_at(text, 0, len(text))
    return (
        label is not None
        and label.end >= len(text)
        and any(label.strong(1 << at) for at in range(len(FAMILIES)))
    )


def item_of(text: str, start: int = 0, stop: int | None = None) -> Item | None:
    """The item that the line `text[start:stop]` is or begins with; None: it is none."""
    stop = len(text) if stop is None else stop
    if stop - start > LONGEST:
        return None
    head = HEAD.match(text, start, stop)
    at = begins = head.end() if head else start
    values: list[tuple[str, int, int]] = []
    sure, labelled = False, True
    words: tuple[str, ...] = ()
    for _ in range(_MOST_CLAUSES):
        clause = _clause(text, at, stop, bool(values))
        if clause is None:
            break
        value, value_start, label = clause
        values.append((value.kind, value_start, value.end))
        sure = sure or value.sure
        labelled = labelled and label is not None
        words = words or (label.words if label else ())
        at = _past_note(text, value.end, stop)
        if _TAIL.match(text, at, stop):
            return Item(begins, tuple(values), True, sure, labelled, words)
        connector = _CONNECTOR.match(text, at, stop)
        if connector is None or connector.end() == at:
            break
        at = connector.end()
    return Item(begins, tuple(values), False, sure, labelled, words) if values else None


def _clause(text: str, start: int, stop: int, later: bool) -> tuple[Value, int, Label | None] | None:
    """One label with its value, and where the value begins."""
    if counter := _counter(text, start, stop):
        return counter, start, Label(start, 0, 0, 0, 0, ("counter",), True)
    label = label_at(text, start, stop)
    if label is None:
        value = _bare(text, start, stop)
        return (value, start, None) if value else None
    quotes = _QUOTES.match(text, label.end, stop)
    at = quotes.end() if quotes else label.end
    value = _best(text, at, stop, label, later)
    if value is not None:
        return value, at, label
    value = _bare(text, start, stop)  # a value may begin with what looks like a label: `Tag 5. März`
    return (value, start, None) if value else None


def _counter(text: str, start: int, stop: int) -> Value | None:
    if _DIGIT.search(text, start, stop) is None:
        return None
    tail = len(text[start:stop].rstrip(" \t*_`)]）】"))
    if whole := counter_at(text, start, start + tail):
        return whole
    end = _SENTENCE_END.search(text, start, stop)
    return counter_at(text, start, end.start()) if end else None


def _best(text: str, at: int, stop: int, label: Label, later: bool) -> Value | None:
    """The surest of what the families that know the label see; among equals the longest."""
    found: list[Value] = []
    if not label.empty:
        found = [
            value
            for family, recognize in _RECOGNIZERS
            if label.means(family) and (value := recognize(text, at, stop, label))
        ]
    if value := _clock(text, at, stop, label, later):
        found.append(value)
    if not found and (minted := minted_id(text, at, stop)) and label.joined:
        found.append(minted._replace(sure=False))
    return max(
        found, key=lambda value: (_ends_clause(text, value.end, stop), value.sure, value.end), default=None
    )


def _ends_clause(text: str, end: int, stop: int) -> bool:
    return end >= stop or text[end] in " \t.,;|)]}'\"`*。，；、）」"


def _clock(text: str, at: int, stop: int, label: Label, later: bool) -> Value | None:
    if not label.empty and not label.means(CLOCK):
        return None
    found = clock_at(text, at, stop)
    if found is None:
        number = _NUMBER.match(text, at, stop) if label.strong(CLOCK) and label.joined else None
        if number:
            return Value("date", number.end(), True)  # Current year: 2030
        return None
    end, precision = found
    if label.empty:
        sure = precision == "instant" and _states_time(label.words, later)
        return Value("clock", end, sure) if sure else None
    if precision == "instant" or (
        precision == "range"
        and label.strong(CLOCK)
        and (label.noun & CLOCK or not _HOURS.search(text, at, end))
    ):
        return Value("clock", end, label.strong(CLOCK))
    if precision == "range":
        return None
    return Value("date", end, label.strong(CLOCK) and _NOT_PRESENT.isdisjoint(label.words))


def _bare(text: str, start: int, stop: int) -> Value | None:
    if minted := minted_id(text, start, stop):
        return minted._replace(sure=False)
    if url := URL.match(text, start, stop):
        return Value("url", url.end(), False)
    found = clock_at(text, start, stop)
    if found is None or found[1] == "range":
        return None
    return Value("clock" if found[1] == "instant" else "date", found[0], False)


def _states_time(words: tuple[str, ...], later: bool) -> bool:
    """`It is`, `Son las`, `as of`; behind another value `and` will do."""
    if later and _JOINING.issuperset(words):
        return True
    return words[-1] in _TIME_VERBS or words in _TIME_PHRASES


def says_present(words: tuple[str, ...]) -> bool:
    """Whether words of a label say that its value is the present one."""
    entries = ((word, LEXICON.get(word)) for word in words)
    return any(
        entry and (entry.mark | entry.name) & CLOCK and word not in _NOT_PRESENT for word, entry in entries
    )


def _past_note(text: str, at: int, stop: int) -> int:
    """Past words that say more about a value, such as `(local time)`."""
    if found := _NOW.match(text, at, stop):
        at = found.end()
    found = _NOTE.match(text, at, stop)
    if found is None:
        return at
    words = [word.lower() for word in _WORDS.findall(found[1])]
    return (
        found.end()
        if words and all(starts_label(word) or word in WORDS or word in _FORMAT for word in words)
        else at
    )
