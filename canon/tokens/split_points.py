"""Where a text can be cut so that its pieces, encoded one by one, give the ids of the whole."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping

from tokenizers import AddedToken

from canon.tokens.tokenizer_set import TokenizerSet, encode

# Encoded whole and in pieces when a tokenizer is loaded; a difference means that it is never cut.
_PROBES = ("{0}", "a{0}b", " a {0} b ", "{0}{0}", "{0}\n{0}x", "\u00e9\u4e2d\U0001f600{0}\u0301 {0}A")


def safe_tokens(tokenizers: TokenizerSet) -> dict[str, int]:
    """The special tokens, with their ids, that a text may be cut at.

    A tokenizer takes added tokens out of a text first and treats what lies between them piece by piece. A special
    token is a safe cut where nothing can keep it from being found at once: it is matched on the raw text, takes no
    blanks from its neighbours, and no other added token can overlap it.
    """
    added = tokenizers.added
    if not tokenizers.deterministic or any(token.single_word for token in added.values()):
        return {}
    neighbours = _Neighbours(token.content for token in added.values())
    safe = {
        token.content: index
        for index, token in added.items()
        if token.special and _stands_alone(token) and not neighbours.can_cover(token.content)
    }
    return safe if _holds(tokenizers, safe) else {}


def _stands_alone(token: AddedToken) -> bool:
    return bool(token.content) and not (token.lstrip or token.rstrip or token.single_word or token.normalized)


class _Neighbours:
    """All added tokens, by what of another one they could cover. There may be thousands."""

    def __init__(self, contents: Iterable[str]) -> None:
        self._sorted = sorted(contents)
        self._tails: dict[str, set[str]] = {}  # what follows after at least one character, by its first one
        for content in self._sorted:
            for at in range(1, len(content)):
                self._tails.setdefault(content[at], set()).add(content[at:])

    def can_cover(self, content: str) -> bool:
        """Could a match of another added token (or of this one, shifted) take a part of `content`?"""
        longer = bisect_right(self._sorted, content)
        if longer < len(self._sorted) and self._sorted[longer].startswith(content):
            return True  # the longer one would be found in its place
        tails = self._tails.get(content[0], ())
        return any(tail.startswith(content) or content.startswith(tail) for tail in tails)


def _holds(tokenizers: TokenizerSet, safe: Mapping[str, int]) -> bool:
    """Does cutting give the same ids on a few texts? What inspection has promised, seen once."""
    return all(
        encode(tokenizers.plain, text).tolist() == _in_pieces(tokenizers, text, token, index)
        for token, index in list(safe.items())[:16]
        for text in (probe.format(token) for probe in _PROBES)
    )


def _in_pieces(tokenizers: TokenizerSet, text: str, token: str, index: int) -> list[int]:
    ids: list[int] = []
    for at, piece in enumerate(re.split(re.escape(token), text)):
        if at:
            ids.append(index)
        if piece:
            ids += encode(tokenizers.inner if at else tokenizers.plain, piece).tolist()
    return ids
