"""A request's data as templates may see it: plain JSON values, copied, with every string checked."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from canon.errors import TemplateError
from canon.tokens.lexemes import NumberLexeme
from canon.tokens.limits import ChatLimits

_SHOWN = 100  # characters of a name in a path: every value has one, and a name may be megabytes long


class PlainCopy:
    """Copies values out of one request, counting its characters.

    Templates then cannot reach an object of ours, and nothing they see changes under them.
    """

    def __init__(self, limits: ChatLimits) -> None:
        self._limits = limits
        self._characters = 0

    def copy(self, value: Any, path: str) -> Any:
        """Raises `TemplateError` for what JSON does not have, lone surrogates, and sizes past the limits."""
        return self._copy(value, path, self._limits.depth)

    def fit(self, *texts: Any) -> bool:
        """Count texts that nothing is wrong with, as most are; False: none was counted, and they are to be copied."""
        characters = self._characters
        for text in texts:
            if type(text) is not str or not text.isascii():
                return False
            characters += len(text)
        if characters > self._limits.characters:
            return False
        self._characters = characters
        return True

    def _copy(self, value: Any, path: str, depth: int) -> Any:
        kind = type(value)  # of what comes from JSON; asking abstract classes takes longer than all the rest
        if isinstance(value, str):
            return self._text(value, path)
        if value is None or kind is bool or isinstance(value, int | float):
            return value
        if depth == 0:
            raise TemplateError(f"nested more than {self._limits.depth} levels deep", path)
        if kind is dict or isinstance(value, Mapping):
            return {
                key if self.fit(key) else self._key(key, path): (
                    item if self.fit(item) else self._copy(item, f"{path}.{key:.{_SHOWN}}", depth - 1)
                )
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._copy(item, f"{path}[{i}]", depth - 1) for i, item in enumerate(value)]
        raise TemplateError(f"{type(value).__name__} is not a JSON value", path)

    def _key(self, key: Any, path: str) -> str:
        if not isinstance(key, str):
            raise TemplateError("a name in an object must be a string", path)
        return self._text(key, path)

    def _text(self, text: str, path: str) -> str:
        check_surrogates(text, path)
        self._characters += len(text)
        if self._characters > self._limits.characters:
            raise TemplateError(f"the request has more than {self._limits.characters} characters", path)
        return text if type(text) is str else str.__str__(text)


def check_surrogates(text: str, path: str) -> None:
    """Lone surrogates have no UTF-8 and hence no tokens."""
    if text.isascii():
        return
    try:
        text.encode()  # several times faster than to look for them
    except UnicodeEncodeError as error:
        raise TemplateError(
            f"lone surrogate U+{ord(text[error.start]):04X} at character {error.start}", path
        ) from None


def strings(value: Any) -> Iterator[str]:
    """Every string in `value`, names in objects included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, NumberLexeme):
        yield value.lexeme
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """`value` with every string replaced by `change(string)`, names in objects included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [map_strings(item, change) for item in value]
    return value
