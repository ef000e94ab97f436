"""What can stand next to what in a match of a regular expression, read off the expression itself.

The expression becomes a Glushkov automaton: one position for each place in it that takes a character, and which
position may follow which (V. M. Glushkov, "The abstract theory of automata", 1961). Which characters a position takes
is asked of the tokenizers' own engine. Pre-tokenizers' expressions are made of classes, literals, groups, repetitions
and lookaheads of one character; anything else is refused.
"""

import re
from dataclasses import dataclass, field, replace

from tokenizers import Regex, normalizers

_QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d+)(,?)(\d*)\})([+?]?)")
_GROUP = re.compile(r"\((\?i:|\?:)?(?!\?)")
_LOOKAHEAD = re.compile(r"\(\?[!=]")
# Of the other letters behind a backslash, some are anchors or references.
_ESCAPE = re.compile(
    r"\\(?:[pP]\{\^?\w+\}|x\{[0-9A-Fa-f]{1,6}\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[sSdDwWnrtfv]|[^\w])"
)


class ShapeError(Exception):
    """The expression has something in it that is not understood."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the expression, by positions."""

    first: frozenset[int] = frozenset()  # a match of it can begin with these
    last: frozenset[int] = frozenset()  # or end with these
    alone: frozenset[int] = frozenset()  # one character at these is a match, whatever stands around it
    nullable: bool = True
    free: bool = True  # can be left out whatever stands around it


@dataclass(slots=True)
class _Drawn:
    """What is gathered while the expression is read."""

    atoms: list[str] = field(default_factory=list)  # the expression of each position
    ahead: set[int] = field(default_factory=set)  # positions of lookaheads, which take nothing
    follow: set[tuple[int, int]] = field(default_factory=set)

    def position(self, atom: str) -> frozenset[int]:
        self.atoms.append(atom)
        return frozenset((len(self.atoms) - 1,))


class RegexShape:
    """The automaton of `pattern`; raises `ShapeError`. `alphabet`: the characters that will be asked about."""

    def __init__(self, pattern: str, alphabet: str) -> None:
        _compiled(pattern)
        drawn = _Drawn()
        whole = _Reader(pattern, drawn).read()
        if whole.nullable:
            raise ShapeError("the expression can match nothing at all")
        members = [_members(atom, alphabet) for atom in drawn.atoms]
        self._takes = [frozenset() if i in drawn.ahead else found for i, found in enumerate(members)]
        self._steps = [(i, members[j]) for i, j in drawn.follow]
        self._alone = whole.alone
        self._single = whole.first & whole.last
        self.looks_ahead = bool(drawn.ahead)

    def before(self, character: str) -> frozenset[str]:
        """What a match, or a lookahead behind one, can have in front of `character`."""
        return frozenset().union(*(self._takes[i] for i, next_ones in self._steps if character in next_ones))

    def taken(self) -> frozenset[str]:
        """What can be in a match."""
        return frozenset().union(*self._takes)

    def whole(self) -> frozenset[str]:
        """What can be a match by itself."""
        return frozenset().union(*(self._takes[i] for i in self._single))

    def always_taken(self) -> frozenset[str]:
        """What is in some match wherever it stands."""
        return frozenset().union(*(self._takes[i] for i in self._alone))


class _Reader:
    """Reads an expression from left to right."""

    def __init__(self, pattern: str, drawn: _Drawn) -> None:
        self._pattern = pattern
        self._at = 0
        self._drawn = drawn

    def read(self) -> _Part:
        whole = self._alternatives("", depth=8)
        if self._at < len(self._pattern):
            raise ShapeError(f"unexpected {self._pattern[self._at]!r} at {self._at}")
        return whole

    def _alternatives(self, flags: str, depth: int) -> _Part:
        if depth == 0:
            raise ShapeError("groups are nested too deeply")
        found = self._sequence(flags, depth)
        while self._take("|"):
            found = _either(found, self._sequence(flags, depth))
        return found

    def _sequence(self, flags: str, depth: int) -> _Part:
        found = _Part()
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            found = self._joined(found, self._repeated(self._item(flags, depth)))
        return found

    def _item(self, flags: str, depth: int) -> _Part:
        if match := _LOOKAHEAD.match(self._pattern, self._at):
            self._at = match.end()
            here = self._drawn.position(_flagged(flags, self._atom()))
            self._drawn.ahead |= here
            self._expect(")")
            return _Part(here, here, free=False)
        if match := _GROUP.match(self._pattern, self._at):
            self._at = match.end()
            inner = self._alternatives("(?i:" if match[1] == "?i:" else flags, depth - 1)
            self._expect(")")
            return inner
        here = self._drawn.position(_flagged(flags, self._atom()))
        return _Part(here, here, here, nullable=False, free=False)

    def _atom(self) -> str:
        """The expression of one character."""
        start, sign = self._at, self._pattern[self._at : self._at + 1]
        if sign == "\\":
            match = _ESCAPE.match(self._pattern, start)
            if match is None:
                raise ShapeError(f"an escape at {start}")
            self._at = match.end()
        elif sign == "[":
            self._at = self._class_end(start)
        elif sign and sign not in "^$()*+?|{":
            self._at += 1
        else:
            raise ShapeError(f"unexpected {sign!r} at {start}")
        return self._pattern[start : self._at]

    def _class_end(self, start: int) -> int:
        at, depth = start, 0
        while at < len(self._pattern):
            if self._pattern[at] == "\\":
                at += 1
            elif self._pattern[at] == "[":
                depth += 1
                if self._pattern[at + 1 : at + 3].removeprefix("^")[:1] == "]":
                    raise ShapeError(f"a class that begins with a bracket at {at}")
            elif self._pattern[at] == "]":
                depth -= 1
                if depth == 0:
                    return at + 1
            at += 1
        raise ShapeError("a class that does not end")

    def _repeated(self, part: _Part) -> _Part:
        match = _QUANTIFIER.match(self._pattern, self._at)
        if match is None:
            return part
        self._at = match.end()
        sign, least, comma, suffix = match.group(1, 2, 3, 5)
        if _QUANTIFIER.match(self._pattern, self._at):
            raise ShapeError("a repetition of a repetition")
        if sign != "?" and (sign or comma or least not in ("0", "1") or suffix == "+"):
            self._drawn.follow.update((i, j) for i in part.last for j in part.first)
        if (sign or least) in ("?", "*", "0"):
            # A possessive repetition does not give back what it took.
            return replace(part, nullable=True, free=suffix != "+")
        if sign != "+" and least != "1":
            return replace(part, alone=frozenset())
        return part

    def _joined(self, left: _Part, right: _Part) -> _Part:
        self._drawn.follow.update((i, j) for i in left.last for j in right.first)
        return _Part(
            left.first | right.first if left.nullable else left.first,
            left.last | right.last if right.nullable else right.last,
            (left.alone if right.free else frozenset()) | (right.alone if left.free else frozenset()),
            nullable=left.nullable and right.nullable,
            free=left.free and right.free,
        )

    def _take(self, sign: str) -> bool:
        if self._pattern.startswith(sign, self._at):
            self._at += len(sign)
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise ShapeError(f"{sign!r} is missing at {self._at}")


def _either(left: _Part, right: _Part) -> _Part:
    return _Part(
        left.first | right.first,
        left.last | right.last,
        left.alone | right.alone,
        nullable=left.nullable or right.nullable,
        free=left.free or right.free,
    )


def literal(text: str) -> str:
    """The expression of `text` itself."""
    return "".join(f"\\{c}" if c.isascii() and not c.isalnum() and c != "_" else c for c in text)


def _flagged(flags: str, atom: str) -> str:
    return f"{flags}{atom})" if flags else atom


def _members(atom: str, alphabet: str) -> frozenset[str]:
    """Which characters of `alphabet` the expression of one character matches."""
    others = normalizers.Replace(_compiled(atom), "").normalize_str(alphabet)
    return frozenset(alphabet) - frozenset(others)


def _compiled(expression: str) -> Regex:
    try:
        return Regex(expression)
    except Exception as error:  # the engine raises nothing more special
        raise ShapeError(f"{expression!r} does not compile: {error}") from error
