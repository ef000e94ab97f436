"""One value that was recognized."""

from typing import NamedTuple

from canon.values.words import word_set


class Value(NamedTuple):
    """A value of the moment, of the session, or of the user."""

    kind: str  # for people: `clock`, `date`, `uuid`, `path`, `counter`, ...
    end: int  # where it ends in its text
    sure: bool  # with the label before it, it can be nothing else


# Words that stand where a value would: the line explains the value and does not give it.
PLACEHOLDERS = word_set(
    """
required optional none unknown null nil string integer number text value here tbd n/a see use ask any
auto default required. optional. unknown. true false yes no
"""
)


def is_placeholder(text: str) -> bool:
    return text.strip("\"'`.").lower() in PLACEHOLDERS or text[:1] in "{<$%"
