"""One leading byte order mark goes, and words of system prose are composed (NFC).

Never: NFKC, which would change what is written (superscripts, fractions); characters that NFC swaps for others (the
sign for angstrom, CJK compatibility ideographs); a line that tells the two forms of a letter apart; paths,
identifiers, code, quoted text; guarded regions; user, assistant and tool text.
"""

import re
import unicodedata
from collections.abc import Iterator

from canon.context import RuleContext
from canon.rules.prose import prose_of

NAME = "unicode"

_MARK = "\ufeff"
_QUOTED = re.compile(
    r"""`[^`]*(?:`|$)|"[^"]*(?:"|$)|“[^”“]*(?:[”“]|$)|„[^“”]*(?:[“”]|$)|«[^»]*(?:»|$)|「[^」]*(?:」|$)|『[^』]*(?:』|$)"""
    r"""|(?<!\w)['‘][^'’]*(?:['’]|$)"""
)
_WORD = re.compile(r"\S+")
_EDGES = "*_()[]{}.,;:!?…¡¿-–—'’"  # what may stand beside a word of prose
_NO_PROSE = re.compile(r"[/\\@_=<>{}\[\]|$#~^*+&%`\d]|[.:]\w")
_LETTERS = re.compile(r"[^\s.,;:!?()\"'`]+")
_OF_FORMS = re.compile(r"U\+[0-9A-Fa-f]{4}|\bNF[CD]\b|\\u[0-9A-Fa-f]{4}")  # it speaks of characters as such
# A path, a file or a folder may have blanks in its name: its whole line is left alone.
_PATH = re.compile(r"(?:^|[\s(\[:=])(?:[~.]{0,2}/|[A-Za-z]:\\|\\\\)\S|/\S*/|\w\.[A-Za-z]\w{0,5}\b")


def apply(context: RuleContext) -> None:
    for slot, starts, _ in prose_of(context):
        text = slot.text
        if text.isascii():
            continue
        if starts and text[0] == _MARK and len(text) > 1 and text[1] != _MARK:
            slot = context.rewrite_or_find(NAME, slot, text[1:], "a byte order mark in front of the text")
        composed = _composed(context, slot.text)
        if composed != slot.text:
            context.rewrite_or_find(NAME, slot, composed, "letters that are not composed")


def _composed(context: RuleContext, text: str) -> str:
    if unicodedata.is_normalized("NFC", text):
        return text
    return "".join(
        text[line.start : line.stop]
        if line.guard or text[line.start : line.stop].isascii()
        else _composed_line(text[line.start : line.stop])
        for line in context.lines(text)
    )


def _composed_line(line: str) -> str:
    if _OF_FORMS.search(line):
        return line
    composed = "".join(_composed_pieces(line))
    told_apart = len(set(_LETTERS.findall(composed))) < len(set(_LETTERS.findall(line)))
    return line if told_apart else composed


def _composed_pieces(line: str) -> Iterator[str]:
    """The line with its words composed, but for those in quotation marks."""
    if _PATH.search(_QUOTED.sub("", line)):
        yield line
        return
    at = 0
    for quoted in _QUOTED.finditer(line):
        yield _WORD.sub(_compose, line[at : quoted.start()])
        yield quoted[0]
        at = quoted.end()
    yield _WORD.sub(_compose, line[at:])


def _compose(word: re.Match[str]) -> str:
    written = word[0]
    if unicodedata.is_normalized("NFC", written) or _NO_PROSE.search(written.strip(_EDGES)):
        return written
    return written if any(map(_is_swapped, written)) else unicodedata.normalize("NFC", written)


def _is_swapped(character: str) -> bool:
    """Whether NFC puts another character in the place of this one."""
    decomposed = unicodedata.decomposition(character)
    return bool(decomposed) and " " not in decomposed
