"""Times to the second and UUIDs anywhere in a text: hardly anybody writes these by hand."""

import re
from collections.abc import Iterator
from typing import NamedTuple

# Each begins with a character that is rare in prose, which makes the search fast; what is before it is checked then.
_TIME = re.compile(r":[0-5]\d:[0-5]\d(?:[.,]\d{1,9})?(?![\d:])")
_UUID = re.compile(r"-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![\w-])", re.IGNORECASE)
_HOUR = re.compile(r"(?<!\d)\d{1,2}\Z")
_UUID_HEAD = re.compile(r"(?<!\w)[0-9a-f]{8}\Z", re.IGNORECASE)


class Stamp(NamedTuple):
    kind: str
    start: int
    stop: int


def stamps_in(text: str) -> Iterator[Stamp]:
    for kind, tail, head, length in (("clock", _TIME, _HOUR, 3), ("uuid", _UUID, _UUID_HEAD, 9)):
        for found in tail.finditer(text):
            if before := head.search(text, max(0, found.start() - length), found.start()):
                yield Stamp(kind, before.start(), found.end())
