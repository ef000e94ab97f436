"""Lines that are somebody's text, an example, a dialogue or a form, where no guard of the text says so.

A line such as `It is 10:11 now.` states the moment in a prompt's own words, and is content in a story, in an example
or below `Translate the following.` In doubt it is content: a value that stays is reported, one that leaves a text harms
it.
"""

from collections.abc import Sequence
from typing import Literal

from canon.values.announcements import (
    ANSWERING,
    ARROW,
    ASKING,
    DOCUMENTS,
    DOCUMENTS_UNSPACED,
    FICTION,
    GIVEN,
    LONGEST,
    OF,
    OF_STATE,
    ORDERING,
    RULE,
    SALUTATION,
    SHOWN,
    SPEAKER,
    TASK,
    TITLE,
    WORD,
)
from canon.values.headings import Heading
from canon.values.items import item_of, says_present


def is_fiction(text: str) -> bool:
    """Whether the text sets a scene, whose clocks and places are the scene's."""
    return FICTION.search(text) is not None


def mark_handed_over(
    strings: Sequence[str], blank: Sequence[bool], headings: Sequence[Heading | None], shown: list[bool]
) -> None:
    """Marks in `shown` what is no word of the prompt's own. Takes time linear in the lines."""
    paragraphs = paragraphs_of(blank)
    for number, (first, stop) in enumerate(paragraphs):
        if _is_dialogue(strings[first:stop]):
            shown[first:stop] = [True] * (stop - first)
        if (reply := SPEAKER.match(strings[stop - 1][:LONGEST])) and not reply[2] and _speaks(reply[1]):
            _mark_next(paragraphs, number, shown)
        for at in range(first, stop):
            if ARROW.match(strings[at]):
                shown[max(first, at - 1) : at + 1] = [True] * (at + 1 - max(first, at - 1))
            elif len(strings[at]) <= LONGEST and SHOWN.search(strings[at]) and not _is_item(strings[at]):
                shown[at + 1 : stop] = [True] * (stop - at - 1)
                if at + 1 == stop:
                    _mark_next(paragraphs, number, shown)
            elif at + 1 < stop and (given := _gives(strings[at][-LONGEST:])):
                _mark_items(strings, at + 1, stop, shown, told=given == "told")
    start = next((at for at in range(len(strings)) if _hands_over(strings, blank, at)), None)
    if start is not None:
        _mark_document(strings, blank, headings, shown, start)


def paragraphs_of(blank: Sequence[bool]) -> list[tuple[int, int]]:
    """First line of each paragraph and the line behind its last."""
    found, first = [], 0
    for at in range(len(blank) + 1):
        if at == len(blank) or blank[at]:
            if at > first:
                found.append((first, at))
            first = at + 1
    return found


def _gives(line: str) -> Literal["told", "titled", ""]:
    """Whether a line announces something else than the moment: in so many words, or as a long title does."""
    told = GIVEN.search(line) is not None
    titled = line.rstrip().endswith((":", "：")) and len(WORD.findall(line)) > 2  # `Prices:` says too little
    if not (told or titled) or OF_STATE.search(line):
        return ""
    return "told" if told else "titled"


def _mark_items(strings: Sequence[str], first: int, stop: int, shown: list[bool], *, told: bool) -> None:
    """Values that follow at once on what announces them; below a mere title, those that are called present are not of
    it."""
    while first < stop and not shown[first]:
        item = item_of(strings[first])
        if item is None or not item.whole or (not told and item.words and says_present(item.words)):
            return
        shown[first] = True
        first += 1


def _mark_next(paragraphs: Sequence[tuple[int, int]], number: int, shown: list[bool]) -> None:
    if number + 1 < len(paragraphs):
        first, stop = paragraphs[number + 1]
        shown[first:stop] = [True] * (stop - first)


def _is_item(string: str) -> bool:
    item = item_of(string)
    return item is not None and item.whole


def _speaks(word: str) -> bool:
    return word.lower() in ASKING or word.lower() in ANSWERING


def _is_dialogue(lines: Sequence[str]) -> bool:
    """Somebody asks, somebody answers, and one of them says more than a word."""
    asks = answers = talks = False
    for line in lines:
        if found := SPEAKER.match(line[:LONGEST]):
            word = found[1].lower()
            asks, answers = asks or word in ASKING, answers or word in ANSWERING
            talks = talks or (_speaks(word) and (not found[2] or " " in found[2].strip()))
    return asks and answers and talks


def _hands_over(strings: Sequence[str], blank: Sequence[bool], at: int) -> bool:
    """Whether a text begins below this line: a task says so, or it is the title of a document."""
    string = strings[at].strip()
    if not string or len(string) > LONGEST:
        return False
    if TASK.search(string) or SALUTATION.match(string):
        return True
    bare = string.rstrip("," if " " in string else ",.")
    if (at and not blank[at - 1]) or string[0].islower() or TITLE.match(bare) is None:
        return False
    if len(bare) < 12 and bare.endswith(DOCUMENTS_UNSPACED):
        return True
    words = [word.lower() for word in WORD.findall(string)]
    if len(words) > 4 or words[0] in ORDERING:
        return False
    return words[-1] in DOCUMENTS or (words[0] in DOCUMENTS and words[1] in OF)  # Minutes of May


def _mark_document(
    strings: Sequence[str],
    blank: Sequence[bool],
    headings: Sequence[Heading | None],
    shown: list[bool],
    start: int,
) -> None:
    """To the next title or rule, or to the end; a last paragraph that says what is present is the prompt's own, if
    there is a text before it."""
    stop = start + 1
    while (
        stop < len(strings)
        and not ((heading := headings[stop]) and heading.marked)
        and not RULE.match(strings[stop])
    ):
        stop += 1
    inside = [(first, end) for first, end in paragraphs_of(blank[start + 1 : stop])]
    if stop == len(strings) and len(inside) > 1:
        first, end = inside[-1]
        items = [item_of(string) for string in strings[start + 1 + first : start + 1 + end]]
        if all(item and item.whole and says_present(item.words) for item in items):
            stop = start + 1 + first
    shown[start + 1 : stop] = [True] * (stop - start - 1)
