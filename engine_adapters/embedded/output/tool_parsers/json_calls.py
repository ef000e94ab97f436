"""The part that all parsers of JSON calls share: content, tag, one call or a list of calls, end tag."""

import re
from collections.abc import Callable
from typing import ClassVar

from engine_adapters.embedded.output.tags import partial_tag
from engine_adapters.embedded.output.tool_parsers.base import (
    CallArguments,
    CallStart,
    ContentPiece,
    ToolParser,
    ToolPiece,
)
from engine_adapters.embedded.output.tool_parsers.call_object import CallObject
from engine_adapters.embedded.output.tool_parsers.content import Content

_SPACE = re.compile(r"\s*")
_CLOSERS = re.compile(r"[\s}\]]*")  # space, and brackets that close too much


class JsonCallParser(ToolParser):
    """Reads `start`, then one call object or a list of them, then `end`; as often as it comes.

    Content keeps its text, but for the space next to a call when no more content follows.
    """

    start: ClassVar[str]  # the tag that opens calls
    end: ClassVar[str] = ""  # the tag that closes them; "": the object or list itself does
    separators: ClassVar[str] = ","  # between calls; inside a list, or outside where there is no end tag
    bare: ClassVar[bool] = False  # a text that begins with "{" is a call without a tag

    def __init__(self, *, parallel: bool = True, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(parallel=parallel, new_id=new_id)
        self._text = ""  # not consumed yet
        self._state: Callable[[], bool] = self._at_beginning if self.bare else self._in_content
        self._content = Content()
        self._out: list[ToolPiece] = []
        self._opening: list[str] = []  # consumed since the last call or content; given back if no call comes
        self._object = CallObject(self.end)
        self._announced = False  # the object's CallStart is out
        self._in_list = False
        self._calls = 0
        self._done = False

    @property
    def done(self) -> bool:
        return self._done

    def push(self, text: str) -> list[ToolPiece]:
        self._text += text
        while self._text and not self._done and self._state():
            pass
        return self._take()

    def finish(self) -> list[ToolPiece]:
        if not self._done:
            if self._state == self._in_call:
                self._call_text(self._object.finish())
                if self._object.status == "malformed":
                    self._give_back(self._object.raw + self._object.rest)
            elif self._state not in (self._between, self._behind):
                self._give_back(self._text)
            self._emit(self._content.finish())
        self._done = True
        self._text = ""
        return self._take()

    # The states: each consumes some text and returns True, or needs more and returns False.

    def _at_beginning(self) -> bool:
        beginning = self._text.lstrip()
        if not beginning:
            return False
        if beginning[0] == "{":
            self._move(self._before_call, len(self._text) - len(beginning))
        else:
            self._state = self._in_content
        return True

    def _in_content(self) -> bool:
        at = self._text.find(self.start)
        if at < 0:
            at = len(self._text) - partial_tag(self._text, self.start)
            self._emit(self._content.push(self._consume(at)))
            return False
        self._emit(self._content.push(self._consume(at)))
        self._move(self._behind_start, len(self.start))
        return True

    def _behind_start(self) -> bool:
        self._skip_space()
        if not self._text:
            return False
        self._in_list = self._text[0] == "["
        self._move(self._before_call, 1 if self._in_list else 0)
        return True

    def _before_call(self) -> bool:
        self._open_call()
        self._state = self._in_call
        return True

    def _in_call(self) -> bool:
        self._call_text(self._object.push(self._consume(len(self._text))))
        if self._object.status == "open":
            return False
        self._text = self._object.rest
        if self._object.status == "malformed":
            self._give_back(self._object.raw)
            self._state = self._in_content
        else:
            self._state = self._between
            self._done = not (self._parallel or self.end)
        return True

    def _between(self) -> bool:
        self._skip_space()
        if not self._text:
            return False
        more = self._text[0] in self.separators and (self._in_list or not self.end)
        if more and self._parallel:
            self._move(self._before_call, 1)
        else:
            self._done = more
            self._state = self._behind
        return True

    def _behind(self) -> bool:
        closers = _CLOSERS.match(self._text)
        self._opening.append(self._consume(closers.end() if closers is not None else 0))
        closed = self._text.startswith(self.end)
        if not self._text or (not closed and self.end.startswith(self._text)):
            return False
        if closed:
            self._consume(len(self.end))
            self._opening.clear()
        self._give_back("")
        self._state = self._in_content
        self._done = not self._parallel
        return True

    def _open_call(self, name: str | None = None) -> None:
        self._object = CallObject(self.end, name)
        self._announced = False

    def _call_text(self, arguments: str) -> None:
        if self._object.started and not self._announced:
            self._announced = True
            self._opening.clear()
            self._content.call()
            self._out.append(CallStart(self._calls, self._new_id(), self._object.name or ""))
            self._calls += 1
        if arguments:
            self._out.append(CallArguments(self._calls - 1, arguments))

    def _give_back(self, text: str) -> None:
        """What was taken for the beginning of a call is content after all."""
        self._emit(self._content.push("".join(self._opening) + text))
        self._opening.clear()

    def _emit(self, content: str) -> None:
        if content:
            self._out.append(ContentPiece(content))

    def _move(self, state: Callable[[], bool], size: int) -> None:
        self._opening.append(self._consume(size))
        self._state = state

    def _skip_space(self) -> None:
        space = _SPACE.match(self._text)
        self._opening.append(self._consume(space.end() if space is not None else 0))

    def _consume(self, size: int) -> str:
        part, self._text = self._text[:size], self._text[size:]
        return part

    def _take(self) -> list[ToolPiece]:
        out, self._out = self._out, []
        return out
