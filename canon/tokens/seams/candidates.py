"""The kinds of places at which a long text may be cut, if a tokenizer allows it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass


def _range(first: int, last: int) -> str:
    return "".join(map(chr, range(first, last + 1)))


_LATIN = _range(0x41, 0x5A) + _range(0x61, 0x7A)
_OTHER_LETTERS = _range(0x3B1, 0x3C9) + _range(0x410, 0x44F) + _range(0x5D0, 0x5EA) + _range(0x627, 0x64A)
# Of the scripts with thousands of characters a part is enough, and looked through faster.
_SYLLABLES = "가고과그기나는다대도든들라로를만사서수시안어에와은을의이인있자정지한해하"
_IDEOGRAPHS = _range(0x3042, 0x3093) + _range(0x30A2, 0x30F3) + _range(0x4E00, 0x4FFF)
_PRINTABLE = _range(0x21, 0x7E)


@dataclass(frozen=True, slots=True)
class Seam:
    """A cut between one of `left` and `right`, which one of `behind` follows.

    No normalization form composes `right` with what stands before it, and none of `behind` with `right`.
    """

    left: str
    right: str
    behind: str

    @property
    def expression(self) -> str:
        """Matches where the right side begins. What is rarest comes first, for a fast search."""
        return f"{behind_any(self.left, self.right)}(?=[{_inside_class(self.behind)}])"


SEAMS = (
    Seam(_LATIN, " ", _LATIN),
    Seam(_LATIN, "\n", _LATIN),
    *(Seam(_LATIN, sign, _PRINTABLE) for sign in '"(.,:'),
    Seam(",;", " ", _LATIN + "\"'0123456789"),
    Seam(_OTHER_LETTERS, " ", _OTHER_LETTERS),
    Seam(_SYLLABLES, " ", _SYLLABLES),
    *(Seam(_IDEOGRAPHS, sign, _IDEOGRAPHS) for sign in "\uff0c\u3002\u3001\n"),
)


def behind_any(left: Iterable[str], right: str) -> str:
    """The expression of `right` where one of `left` stands before it."""
    text = re.escape(right)
    return f"{text}(?<=[{_inside_class(left)}]{text})"


def _inside_class(characters: Iterable[str]) -> str:
    """The inside of a character class, with runs as ranges."""
    runs: list[list[int]] = []
    for code in sorted(map(ord, characters)):
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return "".join(
        f"{re.escape(chr(a))}-{re.escape(chr(b))}" if b > a + 1 else re.escape(chr(a) + chr(b))
        for a, b in runs
    )
