"""Tool-call arguments: JSON text into what templates expect, with numbers written as they came."""

import json
import re
from typing import Any


class NumberLexeme(float):
    """A JSON number whose text would change if Python wrote it: 1E2, 1.50, 1e400."""

    lexeme: str

    def __new__(cls, lexeme: str) -> "NumberLexeme":
        number = super().__new__(cls, lexeme)
        number.lexeme = lexeme
        return number

    def __repr__(self) -> str:
        return self.lexeme

    __str__ = __repr__


def _parse_float(lexeme: str) -> float:
    number = float(lexeme)
    return number if repr(number) == lexeme else NumberLexeme(lexeme)


def _parse_int(lexeme: str) -> int | float:
    # "-0" is an int to the grammar and 0 to Python; very long integers are refused by int().
    return NumberLexeme(lexeme) if lexeme == "-0" or len(lexeme) > 4000 else int(lexeme)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def parse_object(text: str) -> dict[str, Any] | None:
    """The JSON object that `text` is, or None if it is anything else."""
    try:
        value = json.loads(
            text, parse_float=_parse_float, parse_int=_parse_int, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def has_lexemes(value: Any) -> bool:
    """Is there a number in `value` that must be written as it came?"""
    if isinstance(value, dict):
        return any(has_lexemes(item) for item in value.values())
    if isinstance(value, list):
        return any(has_lexemes(item) for item in value)
    return isinstance(value, NumberLexeme)


def dumps_keeping_lexemes(value: Any, **options: Any) -> str:
    """`json.dumps` that writes each `NumberLexeme` as its lexeme."""
    if not has_lexemes(value):
        return json.dumps(value, **options)
    # Such numbers travel through the writer as strings, fenced by a character that the data does not have.
    plain = json.dumps(value, ensure_ascii=False)
    fence = next(chr(c) for c in range(0xF8FF, 0xE000, -1) if chr(c) not in plain)
    options["ensure_ascii"], ascii_only = False, options.get("ensure_ascii", False)
    text = re.sub(f'"{fence}(.*?){fence}"', r"\1", json.dumps(_fenced(value, fence), **options))
    return _escape_non_ascii(text) if ascii_only else text


def _fenced(value: Any, fence: str) -> Any:
    if isinstance(value, dict):
        return {key: _fenced(item, fence) for key, item in value.items()}
    if isinstance(value, list):
        return [_fenced(item, fence) for item in value]
    return f"{fence}{value.lexeme}{fence}" if isinstance(value, NumberLexeme) else value


def _escape_non_ascii(text: str) -> str:
    return "".join(c if c.isascii() else json.dumps(c)[1:-1] for c in text)
