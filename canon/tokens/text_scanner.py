"""Finds many fixed strings in one pass, the leftmost and then the longest first, as tokenizers match added tokens."""

import re
from collections.abc import Iterable

_FEW = 4  # characters
_ESCAPED_SHORT = '"\\/\b\f\n\r\t'  # what JSON may write in another way than as \\u and as it is


class TextScanner:
    """Finds any of `words`. With no words it finds nothing."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = frozenset(word for word in words if word)
        self._pattern = re.compile(_expression(self.words) if self.words else r"(?!)")
        # One look for each character that a word may begin with is many times faster than the search.
        begins = {word[0] for word in self.words}
        self._begins = tuple(begins) if len(begins) <= _FEW else None
        plain = self._begins is not None and begins.isdisjoint(_ESCAPED_SHORT)
        self._raw_begins = tuple(each.encode("utf-8", "surrogatepass") for each in begins) if plain else None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the words stand, as (start, end) in characters, in order and without overlap."""
        return [match.span() for match in self._pattern.finditer(text)]

    def may_be_in_json(self, raw: bytes) -> bool:
        """Whether a word can stand in what JSON in UTF-8 says; False: none can, also not in JSON inside its strings.

        Looks at the bytes alone, which takes a fraction of the time that the values take.
        """
        if self._raw_begins is None or b"\\u" in raw:
            return True
        for begin in self._raw_begins:  # noqa: SIM110  as a generator it takes three times as long
            if begin in raw:
                return True
        return False

    def found_in(self, text: str) -> bool:
        if self._begins is not None:
            for begin in self._begins:
                if begin in text:
                    break
            else:
                return False
        return self._pattern.search(text) is not None


def _expression(words: Iterable[str]) -> str:
    """Words that share a beginning share a branch, so that thousands of words cost one look a character."""
    ordered = sorted(words)
    if len(ordered) == 1:
        return re.escape(ordered[0])
    shared = _shared_length(ordered[0], ordered[-1])
    rest = [word[shared:] for word in ordered]
    branches: dict[str, list[str]] = {}
    for word in rest:
        branches.setdefault(word[:1], []).append(word)
    stops = branches.pop("", None) is not None
    body = "|".join(_expression(branch) for branch in branches.values())
    return f"{re.escape(ordered[0][:shared])}(?:{body}{'|' if stops else ''})"


def _shared_length(first: str, last: str) -> int:
    """Length of the common beginning; of a sorted list, its first and last word tell."""
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return length
