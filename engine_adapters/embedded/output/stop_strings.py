"""Stop strings in streamed text, wherever tokens happen to cut it."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class StopResult:
    """Text that is safe to give out now, and the stop string that ended the text, if one did."""

    text: str
    stop: str | None = None


class StopStrings:
    """Ends a text at the first place where a stop string is complete.

    Where several end at the same character, the longest one counts, so that none of it is shown. Only what
    may still grow into a stop string is held back. How the text is cut into pieces makes no difference.

    Args:
        stops: the stop strings; empty ones are ignored.
        include: leave the stop string at the end of the text.
    """

    def __init__(self, stops: Iterable[str], include: bool = False) -> None:
        self._matchers = [_Matcher(stop) for stop in dict.fromkeys(stops) if stop]
        self._include = include
        self._held = ""
        self._stopped = False

    def push(self, text: str) -> StopResult:
        """Take the next piece of text. Nothing comes out any more after a stop."""
        if self._stopped or not self._matchers:
            return StopResult("" if self._stopped else text)
        start = len(self._held)
        self._held += text
        for at in range(start, len(self._held)):
            stop = self._step(self._held[at])
            if stop is not None:
                return self._end(at + 1, stop)
        # Everything before the longest partial match is out of reach of any stop string.
        safe = len(self._held) - max(matcher.matched for matcher in self._matchers)
        out, self._held = self._held[:safe], self._held[safe:]
        return StopResult(out)

    def flush(self) -> str:
        """What was held back, at the end of the generation."""
        out, self._held = self._held, ""
        return out

    def _step(self, char: str) -> str | None:
        found: str | None = None
        for matcher in self._matchers:
            if matcher.step(char) and (found is None or len(matcher.text) > len(found)):
                found = matcher.text
        return found

    def _end(self, end: int, stop: str) -> StopResult:
        self._stopped = True
        out = self._held[: end if self._include else end - len(stop)]
        self._held = ""
        return StopResult(out, stop)


class _Matcher:
    """How much of one string the text so far ends with (Knuth-Morris-Pratt: constant work a character)."""

    __slots__ = ("_borders", "matched", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched = 0
        self._borders = _borders(text)

    def step(self, char: str) -> bool:
        """Take one character; True when the whole string is there."""
        while self.matched and self.text[self.matched] != char:
            self.matched = self._borders[self.matched - 1]
        if self.text[self.matched] == char:
            self.matched += 1
        return self.matched == len(self.text)


@lru_cache(maxsize=64)  # all choices of a request have the same stop strings
def _borders(text: str) -> tuple[int, ...]:
    """For each prefix, the length of its longest proper prefix that is also its suffix."""
    borders = [0] * len(text)
    length = 0
    for at in range(1, len(text)):
        while length and text[at] != text[length]:
            length = borders[length - 1]
        if text[at] == text[length]:
            length += 1
        borders[at] = length
    return tuple(borders)
