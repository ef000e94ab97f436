"""CRLF and CR at the ends of lines of system prose become LF.

Never: in fences, diffs and the other guarded regions; in user, assistant and tool text.
"""

from collections.abc import Sequence

from canon.context import RuleContext
from canon.rules.prose import prose_of
from canon.text import Line

NAME = "newlines"


def apply(context: RuleContext) -> None:
    for slot, _, _ in prose_of(context):
        if "\r" in slot.text:
            text = _with_line_feeds(slot.text, context.lines(slot.text))
            if text != slot.text:
                context.rewrite_or_find(NAME, slot, text, "line ends other than LF")


def _with_line_feeds(text: str, lines: Sequence[Line]) -> str:
    return "".join(
        text[line.start : line.stop]
        if line.guard or line.end == line.stop
        else f"{text[line.start : line.end]}\n"
        for line in lines
    )
