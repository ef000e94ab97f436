"""Strings of JSON: one spelling for each of their characters, where that cannot change what they mean."""

import re
import unicodedata

_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[^u])")
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SPELLED = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNSEEN = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))
_JOINERS = "\u200c\u200d"  # parts of words in Persian and Hindi, and of emoji


def canonical_string(lexeme: str) -> str:
    """The string between its quotation marks with its escapes spelled one way.

    What JSON must escape gets its shortest escape. Other characters are written raw, as most writers do it; only an
    escaped one that would vanish raw (a control or format character, a line or paragraph separator, an unassigned one)
    or has no UTF-8 (a lone surrogate) stays escaped. What stood there raw stays raw.
    """
    return _ESCAPE.sub(_spell, lexeme) if "\\" in lexeme else lexeme


def _spell(escape: re.Match[str]) -> str:
    character = _character(escape[0])
    if spelled := _SPELLED.get(character):
        return spelled
    return escape[0].lower() if _stays_escaped(character) else character


def _stays_escaped(character: str) -> bool:
    return unicodedata.category(character) in _UNSEEN and character not in _JOINERS


def _character(escape: str) -> str:
    if escape[1] != "u":
        return _SHORT.get(escape[1], escape[1])
    if len(escape) == 6:
        return chr(int(escape[2:], 16))
    high, low = int(escape[2:6], 16), int(escape[8:], 16)
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def meaning(lexeme: str) -> str:
    """The characters that the string between its quotation marks stands for."""
    return _ESCAPE.sub(lambda escape: _character(escape[0]), lexeme) if "\\" in lexeme else lexeme


def can_be_decoded(text: str) -> bool:
    """Whether every escape in a JSON text becomes a raw character or a short escape, so that none must be told from
    the raw character."""
    if "\\u" not in text:
        return True
    characters = map(_character, set(_ESCAPE.findall(text)))
    return not any(character >= " " and _stays_escaped(character) for character in characters)
