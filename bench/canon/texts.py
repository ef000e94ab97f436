"""Prose of any length from a seed: words of ordinary frequencies, sentences, paragraphs."""

import random

_FREQUENT = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they "
    "which one you were all her she there would their we him been has when who will no more if out so up said what "
    "parcel carrier claim street order customer answer question page number week weather archive policy account "
    "invoice delivery window garden machine engine prefix token cache request template message system"
)
_WORDS = _FREQUENT.split()


def paragraphs(rng: random.Random, count: int) -> str:
    """`count` paragraphs of two to four sentences, each paragraph on a line."""
    return "\n".join(_paragraph(rng) for _ in range(count))


def prose(rng: random.Random, size: int) -> str:
    """At least `size` characters."""
    parts: list[str] = []
    length = 0
    while length < size:
        parts.append(_paragraph(rng))
        length += len(parts[-1]) + 1
    return "\n".join(parts)[:size]


def _paragraph(rng: random.Random) -> str:
    return " ".join(_sentence(rng) for _ in range(rng.randrange(2, 5)))


def _sentence(rng: random.Random) -> str:
    words = rng.choices(_WORDS, k=rng.randrange(6, 18))
    return " ".join(words).capitalize() + "."
