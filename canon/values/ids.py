"""Ids of requests, sessions, traces and the like."""

from itertools import pairwise

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
    sure = label.joined if label.strong(ID) else label.colon and _is_random(word)
    return Value("id", end, sure)


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


def _is_random(word: str) -> bool:
    """Letters and digits in turns, as in no name that a person gives."""
    kinds = [char.isdigit() for char in word if char.isalnum()]
    return len(word) >= 12 and sum(a != b for a, b in pairwise(kinds)) >= 4
