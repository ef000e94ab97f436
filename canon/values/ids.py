"""Ids of requests, sessions, traces and the like."""

from canon.values.label_words import ID
from canon.values.labels import Label
from canon.values.shapes import ID_END, MINTED_ID, TOKEN
from canon.values.value import Value, is_placeholder

_SHORTEST = 2


def id_at(text: str, start: int, stop: int, label: Label) -> Value | None:
    """An id behind a label of ids: a minted one in any form, or another word that is no word of a language."""
    if minted := minted_id(text, start, stop):
        return Value(minted.kind, minted.end, label.means(ID))
    found = TOKEN.match(text, start, stop)
    if found is None:
        return None
    end = found.end() - (found[0][-1] in ".:/=@")
    word = text[start:end]
    if len(word) < _SHORTEST or is_placeholder(word) or not _looks_minted(word):
        return None
    return Value("id", end, label.strong(ID) and label.joined)


def minted_id(text: str, start: int, stop: int) -> Value | None:
    """A UUID, ULID, KSUID, JWT, traceparent or hex digest, under whatever label."""
    found = MINTED_ID.match(text, start, stop)
    if found is None or not ID_END.match(text, found.end()):
        return None
    kind = found.lastgroup or "id"
    mixed = kind != "ksuid" or (any(c.isdigit() for c in found[0]) and found[0] != found[0].lower())
    varied = len(set(found[0])) > 3  # 0000... and the like are examples
    return Value(kind, found.end(), True) if mixed and varied else None


def _looks_minted(word: str) -> bool:
    if any(c.isdigit() for c in word):
        return True
    return len(word) >= 16 and word not in (word.lower(), word.upper(), word.capitalize())
