"""Sets of words, written as text."""


def word_set(text: str) -> frozenset[str]:
    """The words of a text, apart by blanks and line ends."""
    return frozenset(text.split())
