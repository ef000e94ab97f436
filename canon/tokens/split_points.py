"""Where a text can be cut so that its pieces, encoded one by one, give the ids of the whole."""

import re
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
    added = list(tokenizers.added.values())
    if not tokenizers.deterministic or any(token.single_word for token in added):
        return {}
    safe = {
        token.content: index
        for index, token in tokenizers.added.items()
        if token.special and _stands_alone(token) and not _overlapped(token.content, added)
    }
    return safe if _holds(tokenizers, safe) else {}


def _stands_alone(token: AddedToken) -> bool:
    return bool(token.content) and not (token.lstrip or token.rstrip or token.single_word or token.normalized)


def _overlapped(content: str, added: Iterable[AddedToken]) -> bool:
    """Could a match of another added token (or of this one, shifted) cover a part of `content`?"""
    return any(_overlaps(other.content, content) for other in added)


def _overlaps(other: str, content: str) -> bool:
    if other != content and other.startswith(content):
        return True  # the longer one would be found in its place
    at = other.find(content[0], 1)
    while at != -1:
        tail = other[at:]
        if tail.startswith(content) or content.startswith(tail):
            return True
        at = other.find(content[0], at + 1)
    return False


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
