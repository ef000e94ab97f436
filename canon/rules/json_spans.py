"""JSON in a fence or among the prose of a text."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from canon.errors import JsonRefusedError
from canon.lossless import canonical, read
from canon.rules.json_forms import may_show_form
from canon.text import Line, may_ask_for_form

_START = re.compile(
    r"^[ \t]*(?:[-*] )?(?:[\w ]{1,40}[:：][ \t]*)?(?:<[\w.:-]{1,40}>[ \t]*)?([{\[])", re.MULTILINE
)
_LINE_END = re.compile(r"[ \t]*(?=[\r\n]|</|$)")
_FENCE = re.compile(r"[ \t]*[`~]{3,}[ \t]*(?:jsonc?|JSON)?[ \t]*$")
_PROSE = (None, "tagged", "code", "indent")


class JsonSpan(NamedTuple):
    """`text[start:end]` is an array or an object, and `form` says the same in the canonical form."""

    start: int
    end: int
    form: str


def json_spans(text: str, lines: Sequence[Line]) -> Iterator[JsonSpan]:
    """The JSON that stands on lines of its own, behind a label at most, and is data.

    What may show the model a form of output is not among it, nor is what is part of a program, a quote, a table, or a
    text handed over. What fails to be JSON is not searched for smaller pieces of it, so the time is linear.
    """
    starts = [line.start for line in lines]
    at = 0
    while found := _START.search(text, at):
        begin = found.start(1)
        try:
            _, end = read(text, begin)
        except JsonRefusedError as refused:
            at = max(begin + 1, refused.offset or 0)
            continue
        at = end
        if (stop := _LINE_END.match(text, end)) and _is_data(
            text, lines, bisect_right(starts, begin) - 1, begin, end
        ):
            at = stop.end()
            yield JsonSpan(begin, end, canonical(text[begin:end]))


def _is_data(text: str, lines: Sequence[Line], number: int, begin: int, end: int) -> bool:
    line = lines[number]
    if may_show_form(text[begin:end]) or may_ask_for_form(text[line.start : begin]):
        return False
    if line.guard == "fence":
        return _fills_fence(text, lines, number, end) and not _asked_for(text, lines, number - 1)
    return line.guard in _PROSE and not _is_in_program(lines, number) and not _asked_for(text, lines, number)


def _fills_fence(text: str, lines: Sequence[Line], number: int, end: int) -> bool:
    """Whether the JSON is all that a fence without a language, or one of JSON, has in it."""
    if not number or lines[number - 1].guard != "fence" or not _FENCE.match(lines[number - 1].of(text)):
        return False
    rest = text[end : end + 200].lstrip()
    return rest.startswith(("```", "~~~"))


def _asked_for(text: str, lines: Sequence[Line], number: int) -> bool:
    """Whether the text right before line `number` asks for an output in this form."""
    for line in reversed(lines[max(0, number - 3) : number]):
        before = line.of(text)
        if before.strip():
            return may_ask_for_form(before)
    return False


def _is_in_program(lines: Sequence[Line], number: int) -> bool:
    return number > 0 and lines[number - 1].guard in ("code", "indent")
