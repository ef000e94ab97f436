"""What stands before a value and says what it is: `Current time:`, `session_id=`, `Heute ist`, `現在の日時:`.

A label is read word by word, in any of the languages in `label_words`: every word must be known, and together they must
name something. So `Current date and time (UTC)` needs no entry of its own, and `Release date` is none.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from canon.values.label_words import FAMILIES, FILLERS, JOINS, LEXICON, Entry

_LONGEST = 96  # characters of a label
_MOST_WORDS = 12
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_IN_PLACE = re.compile(
    r"[ \t]+[A-Z][\w/'-]*(?:,?[ ][A-Z][\w-]*){0,2}(?=[ \t]*[:：=]|[ ](?:is|ist|est|es)[ ])"
)
_NOTE = re.compile(r"[ \t]*[(（][^()（）\n]{1,40}[)）](?=[*_ \t]*[:：=])")
_GOES_ON = re.compile(r"[-_.]?[0-9]")
_BETWEEN = re.compile(r"(?:[ \t_\-*&`()（）#.,+]|(?<=\w)/)*")  # a slash behind a blank begins a path
_SEPARATOR = re.compile(r"[ \t*_`\"'”)\]）]*(?:[:：=]|[\]】](?=[ \t\w])|->|→|[—–](?=[ \t]))[ \t*_]*")
_WIDE = ("\u2e80", "\ud7ff")
_ALL = (1 << len(FAMILIES)) - 1
_FILLER = Entry(_ALL, 0, 0, 0)
_UNSPACED = re.compile(
    "|".join(
        re.escape(word)
        for word in sorted((*LEXICON, *FILLERS, *JOINS), key=len, reverse=True)
        if _WIDE[0] <= word[0] <= _WIDE[1]
    )
)


class Label(NamedTuple):
    """A label at the head of a text."""

    end: int  # where the value begins
    families: int  # bits of the families that know every word
    noun: int  # bits of the families for which a word names a thing: `time`, `id`
    mark: int  # and for which one says whose or which it is: `current`, `session`
    name: int  # and for which one does both: `hostname`, `today`
    words: tuple[str, ...]
    colon: bool  # a colon or an equals sign stands between label and value

    @property
    def joined(self) -> bool:
        """Something stands between label and value, be it an `is`."""
        return self.colon or self.words[-1] in JOINS

    def strong(self, family: int) -> bool:
        """The label says by itself that its value is of the moment."""
        if self.name & family:
            return True
        if not (self.noun & self.mark & family):
            return bool(self.noun & family and self.mark & family)
        entries = [entry for word in self.words if (entry := LEXICON.get(word))]
        return sum(1 for entry in entries if (entry.noun | entry.mark) & family) > 1  # one word is not both

    @property
    def empty(self) -> bool:
        """Only words that mean nothing by themselves, such as `It is`."""
        return not (self.noun | self.mark | self.name)

    def means(self, family: int) -> bool:
        return bool((self.noun | self.mark | self.name) & self.families & family)


def starts_label(word: str) -> bool:
    """Could a label begin with this word, in lower case?"""
    return word in LEXICON or word in FILLERS or word in JOINS


def starts_unspaced_label(text: str) -> bool:
    return _UNSPACED.match(text) is not None


def label_words() -> Iterator[str]:
    """Words that mean something in a label."""
    return (word for word, entry in LEXICON.items() if entry.noun or entry.mark or entry.name)


def filler_words() -> Iterator[str]:
    """Words that say nothing by themselves."""
    known = {word for word, entry in LEXICON.items() if not (entry.noun or entry.mark or entry.name)}
    meaning = set(label_words())
    return (word for word in known | FILLERS | JOINS if word not in meaning)


def label_at(text: str, start: int, stop: int) -> Label | None:
    """The label at `start`; None: there is none. What follows it may be no value at all."""
    at, limit = start, min(stop, start + _LONGEST)
    words: list[str] = []
    known, noun, mark, name = _ALL, 0, 0, 0
    colon = False
    while at < limit and len(words) < _MOST_WORDS:
        if words and (separator := _SEPARATOR.match(text, at, limit)):
            at, colon = separator.end(), True
            break
        if words and (note := _NOTE.match(text, at, limit)):
            at = note.end()
            continue
        if words and words[-1] in ("in", "at", "for") and (place := _IN_PLACE.match(text, at, limit)):
            at = place.end()
            continue
        begins = at
        between = _BETWEEN.match(text, at, limit)
        at = between.end() if between else at
        step = _word_at(text, at, limit)
        if step is None or not (known & step[1].known):
            at = _value_start(text, begins, at)
            break
        word, entry = step
        words.append(word)
        at += len(word)
        known &= entry.known
        noun, mark, name = noun | entry.noun, mark | entry.mark, name | entry.name
    if not words:
        return None
    return Label(at, known, noun & known, mark & known, name & known, tuple(words), colon)


def _value_start(text: str, begins: int, at: int) -> int:
    """Past blanks and marks, but not past what a value can begin with."""
    while begins < at and text[begins] not in "/-.+#(（`":
        begins += 1
    return begins


def _word_at(text: str, at: int, limit: int) -> tuple[str, Entry] | None:
    if at >= limit:
        return None
    wide = _WIDE[0] <= text[at] <= _WIDE[1]
    found = (_UNSPACED if wide else _WORD).match(text, at, limit)
    if found is None or (not wide and _GOES_ON.match(text, found.end(), limit)):
        return None  # `ip-10-0-3-4` is a value
    word = found[0].lower().replace("’", "'")
    entry = LEXICON.get(word) or (_FILLER if word in FILLERS or word in JOINS else None)
    return (word, entry) if entry and len(word) == len(found[0]) else None
