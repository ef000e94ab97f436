"""A cheap look at the lines of a text, which most prose does not pass."""

import re

from canon.values.clock_words import WORDS
from canon.values.clocks import clock_at
from canon.values.counters import counter_words, starts_unspaced_counter
from canon.values.headings import title_words
from canon.values.items import HEAD, LONGEST
from canon.values.label_words import JOINS
from canon.values.labels import filler_words, label_words, starts_unspaced_label

_MARKS = " \t-*•·+–#_`[(（【/<!■◆●▼▶◇□▪"
_MOST_WORDS = 14
_HEAD_LENGTH = 64  # characters in which a line's first word that means something must stand
_TELLING = 60  # characters; a longer line is an item only if something in it tells a value
_TOLD = re.compile(r"[\d:：=/]")
_NUMBERED = re.compile(r"\d{1,3}[.)][ \t]")
_DIGIT = re.compile(r"\d")
_MINTED = re.compile(r"[0-9A-Za-z][\w-]{24,}")
_WORDS = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
# Words that can begin an item: True, they mean something; False, another word must follow that does.
_HEADS: dict[str, bool] = {
    **dict.fromkeys(WORDS, True),
    **dict.fromkeys(counter_words(), True),
    **dict.fromkeys(label_words(), True),
    **dict.fromkeys(filler_words(), False),
    **dict.fromkeys(title_words(), True),
    **dict.fromkeys(("note", "info", "fyi", "hinweis", "nota", "remarque"), False),
}


def may_hold_item(line: str) -> bool:
    """Whether the line may be an item, or be the title of a value or of a block."""
    bare = line.lstrip(_MARKS)
    word = bare.partition(" ")[0].rstrip(":,.;")
    if word.isalpha() and _HEADS.get(word.lower()) is None and word < "\u2600":
        return False  # most lines of prose end here
    if not bare or len(line) > LONGEST:
        return False
    if len(bare) > _TELLING and _TOLD.search(bare) is None:
        return False
    return _begins_item(bare) if not word.isalpha() or word >= "\u2600" else _goes_on(bare)


def _goes_on(bare: str) -> bool:
    """Word by word through the label: whether a value may follow, and not just any word."""
    joined = meant = False
    for token in bare.split(" ", _MOST_WORDS):
        word = token.rstrip(",.;").lower()
        means = _HEADS.get(word)
        if means is None:
            return not word.isalpha() or (meant and (joined or not token.islower()))
        meant = meant or means
        joined = word in JOINS
    return True


def _begins_item(bare: str) -> bool:
    first = bare[0]
    if first > "\u2600" and (sign := HEAD.match(bare)) and sign.end():
        bare = bare[sign.end() :] or " "
        first = bare[0]
    if first.isdigit():
        return _NUMBERED.match(bare) is None
    if "\u2e80" <= first <= "\ud7ff":
        known = starts_unspaced_label(bare) or starts_unspaced_counter(bare)
        return known or clock_at(bare, 0, len(bare)) is not None
    for found in _WORDS.finditer(bare, 0, _HEAD_LENGTH):
        means = _HEADS.get(found[0].lower().replace("’", "'"))
        if means is not False:
            return means is True or _MINTED.match(bare) is not None
    return _DIGIT.search(bare, 0, _HEAD_LENGTH) is not None
