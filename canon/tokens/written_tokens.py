"""Special tokens that are written in a request: in messages, tools or template variables."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from canon.tokens.lexemes import parse_object
from canon.tokens.text_scanner import TextScanner

# A path's last step with the path before it: written out only where something is found, since each of many values
# may stand behind a name of megabytes.
_Place: TypeAlias = "tuple[_Place, str | int] | None"

_PATHS = 256  # told apart
_NAME = 100  # characters of a name in a path


def written_tokens(special: TextScanner, content: Mapping[str, Any]) -> dict[str, int]:
    """How many of the `special` tokens stand at which path of `content`, for example `messages[1].content[0].text`.

    `content` is parsed JSON of any depth; the work is linear in its text. Names in paths are cut, and past 256 paths
    the rest is counted together under `...`.
    """
    writing = _Writing(special)
    writing.walk(content, None)
    return writing.found


class _Writing:
    """What was found so far."""

    def __init__(self, special: TextScanner) -> None:
        self._special = special
        self.found: dict[str, int] = {}

    def walk(self, value: Any, place: _Place) -> int:
        """How many tokens `value`, which stands at `place`, has in it; in the order that they are written in."""
        total, waiting, found_in = 0, [(value, place)], self._special.found_in
        while waiting:
            value, place = waiting.pop()
            kind = type(value)  # asking abstract classes takes longer than all the rest
            if kind is str or isinstance(value, str):
                total += self._text(value, place)
            elif kind is dict or isinstance(value, Mapping):
                for name in value:
                    if found_in(name):
                        total += self._count(name, place)
                waiting += [(item, (place, name)) for name, item in reversed(tuple(value.items()))]
            elif isinstance(value, list | tuple):
                waiting += [(value[i], (place, i)) for i in range(len(value) - 1, -1, -1)]
        return total

    def _text(self, text: str, place: _Place) -> int:
        called_with = parse_object(text) if place is not None and place[1] == "arguments" else None
        if called_with is None:
            return self._count(text, place) if self._special.found_in(text) else 0
        # Templates get arguments parsed, with what is escaped in them, or as they are, with names that stand twice.
        parsed = self.walk(called_with, place)
        return parsed + self._add(len(self._special.spans(text)) - parsed, place)

    def _count(self, text: str, place: _Place) -> int:
        return self._add(len(self._special.spans(text)), place)

    def _add(self, count: int, place: _Place) -> int:
        if count <= 0:
            return 0
        path = _written_out(place) if len(self.found) < _PATHS else "..."
        self.found[path] = self.found.get(path, 0) + count
        return count


def _written_out(place: _Place) -> str:
    return "".join(reversed(list(_steps(place)))).removeprefix(".")


def _steps(place: _Place) -> Iterator[str]:
    """From the last to the first."""
    while place is not None:
        place, step = place
        yield f"[{step}]" if isinstance(step, int) else f".{step[:_NAME]}"
