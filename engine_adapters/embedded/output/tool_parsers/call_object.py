"""One tool call written as a JSON object, read while it is written."""

import json
import re
from collections.abc import Callable
from typing import Literal

from engine_adapters.embedded.output.tool_parsers.json_value import ValueScanner

_SPACE = re.compile(r"[ \t\r\n]*")
_ARGUMENTS = ("arguments", "parameters")

Role = Literal["key", "name", "arguments", "other"]


class CallObject:
    """`{"name": ..., "arguments": {...}}`; keys in any order, `parameters` for `arguments`, others skipped.

    The arguments are given out as they arrive, exactly as written, once the name is known. Arguments that
    were written as a JSON string are unpacked; missing, null or empty ones become `{}`. Mistakes before a
    call has `started` make it `malformed`; after that the object just ends at the mistake, since what is out
    is out.

    Args:
        end_tag: what closes the call behind the object; "": nothing does.
        name: known already, so that only the arguments follow, and end the object.
    """

    def __init__(self, end_tag: str = "", name: str | None = None) -> None:
        self.name = name
        self.started = False  # the name is known and the arguments begin
        self.status: Literal["open", "closed", "malformed"] = "open"
        self._end_tag = end_tag
        self._text = ""
        self._at = 0  # self._text is consumed up to here
        self._raw: list[str] = []  # everything consumed, until started
        self._arguments: list[str] = []  # not given out yet
        self._has_arguments = False
        self._only_arguments = name is not None
        self._state: Callable[[], bool] = self._before_value if self._only_arguments else self._before
        self._scanner = ValueScanner()
        self._role: Role = "other"
        self._key = "arguments" if self._only_arguments else ""
        self._value: list[str] = []
        self._streams = False

    def push(self, text: str) -> str:
        """Take the next text; returns new arguments text."""
        self._text = self._text[self._at :] + text
        self._at = 0
        while self.status == "open" and self._at < len(self._text) and self._state():
            pass
        return self._take_arguments()

    def finish(self) -> str:
        """The text ends inside the object; returns the last arguments text."""
        if self.status == "open":
            if self.started and self._streams:
                self._give(self._consume(len(self._text)))
            self._fail()
        return self._take_arguments()

    @property
    def raw(self) -> str:
        """The object's own text, as long as it has not started."""
        return "".join(self._raw)

    @property
    def rest(self) -> str:
        """The text behind the object, or from the mistake on."""
        return self._text[self._at :]

    def _take_arguments(self) -> str:
        if not self.started or not self._arguments:
            return ""
        text = "".join(self._arguments)
        self._arguments.clear()
        return text

    # The states: each consumes some text and returns True, or needs more and returns False.

    def _before(self) -> bool:
        return self._go({"{": self._before_key})

    def _before_key(self) -> bool:
        char = self._next_char()
        if char == '"':
            self._begin_value("key")
            return True
        return self._go({"}": self._closed})

    def _before_colon(self) -> bool:
        return self._go({":": self._before_value})

    def _before_value(self) -> bool:
        if not self._next_char():
            return False
        if self._key == "name" and self.name is None:
            self._begin_value("name")
        elif self._key in _ARGUMENTS and not self._has_arguments:
            self._begin_value("arguments")
        else:
            self._begin_value("other")
        return True

    def _after_value(self) -> bool:
        return self._go({",": self._before_key, "}": self._closed})

    def _in_value(self) -> bool:
        scan = self._scanner.scan(self._text, self._at)
        part = self._consume(scan.end)
        if self._streams:
            self._give(part)
        elif self._role != "other":
            self._value.append(part)
        if scan.found == "tag":
            self._fail()
        elif scan.found == "value":
            self._end_value()
        return scan.found == "value"

    def _closed(self) -> bool:
        if self.name is None:
            self._fail()
        elif not self._has_arguments:
            self._give("{}")
        if self.started:
            self.status = "closed"
        return False

    def _go(self, states: dict[str, Callable[[], bool]]) -> bool:
        """Skip space, then go on by the next character; one that is not expected is a mistake."""
        char = self._next_char()
        if char in states:
            self._consume(self._at + 1)
            self._state = states[char]
            return self._state() if char == "}" else True
        if char:
            self._fail()
        return False

    def _begin_value(self, role: Role) -> None:
        self._role = role
        self._scanner = ValueScanner(self._end_tag)
        self._streams = role == "arguments" and self._text[self._at] == "{"
        self._state = self._in_value

    def _end_value(self) -> None:
        lexeme = "".join(self._value)
        self._value.clear()
        self._state = self._after_value
        if self._role == "key":
            self._state = self._before_colon
            self._key = self._string(lexeme)
        elif self._role == "name":
            self.name = self._string(lexeme)
            self._start()
        elif self._role == "arguments" and not self._streams:
            self._give(self._unpacked(lexeme))
        self._streams = False
        if self._only_arguments and self.started:
            self.status = "closed"

    def _string(self, lexeme: str) -> str:
        value = _parsed(lexeme)
        if not isinstance(value, str):
            self._fail()
            return ""
        return value

    def _unpacked(self, lexeme: str) -> str:
        value = _parsed(lexeme)
        if value is _BROKEN:
            self._fail()
        elif value is None or (isinstance(value, str) and not value.strip()):
            return "{}"
        elif isinstance(value, str) and isinstance(_parsed(value), dict):
            return value
        return lexeme

    def _give(self, arguments: str) -> None:
        self._has_arguments = True
        self._arguments.append(arguments)
        self._start()

    def _start(self) -> None:
        if self.name is not None and self._has_arguments and self.status == "open":
            self.started = True
            self._raw.clear()

    def _fail(self) -> None:
        self.status = "closed" if self.started else "malformed"

    def _next_char(self) -> str:
        """The next character that is not space; "" where there is none yet."""
        space = _SPACE.match(self._text, self._at)
        if space is not None:
            self._consume(space.end())
        return self._text[self._at : self._at + 1]

    def _consume(self, end: int) -> str:
        part = self._text[self._at : end]
        self._at = end
        if not self.started:
            self._raw.append(part)
        return part


_BROKEN = object()


def _parsed(lexeme: str) -> object:
    try:
        return json.loads(lexeme, strict=False)
    except (ValueError, RecursionError):
        return _BROKEN
