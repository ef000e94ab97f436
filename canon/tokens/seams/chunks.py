"""Cuts long texts so that a text which grows, or loses its beginning, keeps most of its cuts."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from zlib import crc32

from canon.tokens.seams.candidates import Seam
from canon.tokens.text_scanner import TextScanner

_CONTEXT = 16  # characters before a seam by which it is chosen, whatever stands further up
_ONE_IN = 8  # seams


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """In characters."""

    whole: int = 12_000  # texts up to here are left whole: encoding one again takes some milliseconds
    least: int = 4_000  # of a chunk, but for the last one
    most: int = 16_000  # from here on, the next seam is taken


class Chunker:
    """Cuts at `seams`. Without any, a text is one chunk, and so is one in which a word of `barring` stands."""

    def __init__(
        self, seams: Sequence[Seam], sizes: ChunkSizes | None = None, barring: Iterable[str] = ()
    ) -> None:
        self._barring = TextScanner(barring)
        self._sizes = sizes or ChunkSizes()
        self.whole = self._sizes.whole  # characters: no text up to here is cut
        self._seam = re.compile("|".join(seam.expression for seam in seams)) if seams else None

    def cuts(self, text: str) -> list[int]:
        """Where the chunks of `text` begin, the first one's 0 left out; found from left to right."""
        found: list[int] = []
        if self._seam is None or len(text) <= self._sizes.whole or self._barring.found_in(text):
            return found
        at = 0
        while len(text) - at > self._sizes.least and (cut := self._next(self._seam, text, at)):
            found.append(cut)
            at = cut
        return found

    def _next(self, seam: re.Pattern[str], text: str, start: int) -> int:
        """The next cut, or 0."""
        for match in seam.finditer(text, start + self._sizes.least):
            at = match.start()
            if (
                at - start >= self._sizes.most
                or crc32(text[max(at - _CONTEXT, 0) : at].encode()) % _ONE_IN == 0
            ):
                return at
        return 0
