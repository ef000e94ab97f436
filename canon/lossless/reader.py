"""Reads JSON (RFC 8259) with every number and string as it is spelled, without recursion and in linear time."""

import re
from typing import NamedTuple, TypeAlias

from canon.errors import JsonRefusedError
from canon.lossless.strings import meaning

MAX_DEPTH = 200  # of arrays and objects in one another; what is deeper is left alone

_TOKEN = re.compile(
    r"[ \t\n\r]*+(?:([{}\[\],:])"
    r'|"((?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+)"'
    r"|(-?(?:0|[1-9]\d*+)(?:\.\d++)?+(?:[eE][+-]?\d++)?+|true|false|null)"
    r"(?![\w.+-]))",
    re.ASCII,
)
_NO_NUMBER = re.compile(r"[ \t\n\r]*+-?(?:NaN|Infinity)\b")


class Atom(NamedTuple):
    """A number, true, false or null."""

    lexeme: str


class String(NamedTuple):
    """A string: what stands between its quotation marks."""

    lexeme: str


class Array(NamedTuple):
    items: list["Node"]


class Object(NamedTuple):
    """Members in the order in which they stood: names as spelled. No two names mean the same."""

    members: list[tuple[str, "Node"]]


Node: TypeAlias = Atom | String | Array | Object


def read(text: str, start: int = 0) -> tuple[Node, int]:
    """The JSON value that begins at `start`, blanks before it allowed, and where it ends.

    Raises:
        JsonRefusedError: it is no JSON, it is cut off, an object has a name twice, or it is nested too deeply.
    """
    return _Reader(text, start).read()


class _Reader:
    """One value after another; the containers that are still open stand on a stack."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._at = start
        self._open: list[tuple[Array | Object, set[str]]] = []

    def read(self) -> tuple[Node, int]:
        node = self._value(self._next())
        while self._open:
            node = self._close_or_go_on()
        return node, self._at

    def _next(self) -> re.Match[str]:
        token = _TOKEN.match(self._text, self._at)
        if token is None:
            number = _NO_NUMBER.match(self._text, self._at)
            raise JsonRefusedError("a number that JSON does not have" if number else "not JSON", self._at)
        self._at = token.end()
        return token

    def _value(self, token: re.Match[str]) -> Node:
        """The value that this token begins; of a container, only its start, which is then open."""
        kind = token.lastindex
        if kind == 2:
            return String(token[2])
        if kind == 3:
            return Atom(token[3])
        if token[1] not in "{[":
            raise JsonRefusedError("not JSON", token.start(1))
        if len(self._open) == MAX_DEPTH:
            raise JsonRefusedError("nested too deeply", token.start(1))
        node: Array | Object = Object([]) if token[1] == "{" else Array([])
        self._open.append((node, set()))
        return node

    def _close_or_go_on(self) -> Node:
        """One step inside the innermost open container, which it returns."""
        node, names = self._open[-1]
        held = node.members if isinstance(node, Object) else node.items
        token = self._next()
        if token[1] == ("}" if isinstance(node, Object) else "]"):
            self._open.pop()
            return self._open[-1][0] if self._open else node
        if held:
            if token[1] != ",":
                raise JsonRefusedError("not JSON", token.start())
            token = self._next()
        if isinstance(node, Object):
            name = self._name(token, names)
            node.members.append((name, self._value(self._next())))
        else:
            node.items.append(self._value(token))
        return node

    def _name(self, token: re.Match[str], names: set[str]) -> str:
        if token.lastindex != 2 or self._next()[1] != ":":
            raise JsonRefusedError("not JSON", token.start())
        name = token[2]
        means = meaning(name)
        if means in names:
            raise JsonRefusedError("a name twice in one object", token.start(2))
        names.add(means)
        return name
