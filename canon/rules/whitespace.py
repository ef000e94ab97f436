"""Blanks and blank lines of system prose that mean nothing.

Gone: blank lines before the whole text; blanks and newlines after it; a single blank or tab at a line's end; all but
one of several blank lines in a row.

Never: two or more blanks before a newline (a line break in Markdown); the end of a text that ends in YAML, a patch, an
open fence or a text handed over; where two parts of a message meet; guarded regions; user, assistant and tool text.
"""

from collections.abc import Sequence

from canon.context import RuleContext
from canon.rules.prose import Prose, prose_of
from canon.text import Line, is_key

NAME = "whitespace"

_BLANKS = " \t"
_ENDS = " \t\r\n"
_EXACT_TO_THE_END = ("fence", "diff", "content", "indent")


def apply(context: RuleContext) -> None:
    for prose in prose_of(context):
        if _may_change(prose):
            text = _trimmed(prose, context.lines(prose.slot.text))
            if text and text != prose.slot.text:
                context.rewrite_or_find(NAME, prose.slot, text, "blanks or blank lines that mean nothing")


def _may_change(prose: Prose) -> bool:
    text = prose.slot.text
    if not text or text.isspace():
        return False
    if (prose.starts and text[0] in _ENDS) or (prose.ends and text[-1] in _ENDS):
        return True
    return " \n" in text or "\t\n" in text or "\n\n\n" in text or "\r" in text


def _trimmed(prose: Prose, lines: Sequence[Line]) -> str:
    text = prose.slot.text
    written = [at for at, line in enumerate(lines) if line.guard or line.of(text).strip(_BLANKS)]
    first, last = written[0], written[-1]  # there is one: the text is not blank
    inner = lines[first : last + 1]
    # A byte order mark behind blank lines is not at the start, and is not to come there.
    keeps_head = not prose.starts or text.startswith("\ufeff", inner[0].start)
    head = text[: inner[0].start] if keeps_head else ""
    body = "".join(_lines_kept(text, inner))
    if not prose.ends or inner[-1].guard in _EXACT_TO_THE_END or _ends_in_yaml(text, inner):
        return head + body + text[inner[-1].end :]
    return head + (body if inner[-1].guard else body.rstrip(_BLANKS))


def _ends_in_yaml(text: str, lines: Sequence[Line]) -> bool:
    """Whether the last two lines are flat YAML; deeper YAML is guarded."""
    return len(lines) > 1 and all(is_key(line.of(text)) for line in lines[-2:])


def _lines_kept(text: str, lines: Sequence[Line]) -> list[str]:
    """The lines with their ends, the last one without; of blank lines in a row the first."""
    kept: list[str] = []
    blank = False
    for at, line in enumerate(lines):
        shown = line.of(text)
        is_last = at + 1 == len(lines)
        if not line.guard and line.end < line.stop:
            shown = _without_stray_blank(shown)
            if not shown and blank:
                continue
        blank = not shown and not line.guard
        kept.append(shown if is_last else shown + text[line.end : line.stop])
    return kept


def _without_stray_blank(line: str) -> str:
    bare = line.rstrip(_BLANKS)
    if bare == "--":  # what begins a signature has a blank, RFC 3676, section 4.3
        return line
    return bare if len(line) - len(bare) == 1 else line
