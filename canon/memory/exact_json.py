"""JSON values compared as they are written: number lexemes count, key order and spacing do not."""

import json
from typing import Any


class NotExactError(ValueError):
    """Text that is no JSON, or JSON whose meaning readers disagree about (a key twice, NaN)."""


def exact_value(text: str) -> Any:
    """A value that equals another one's only if both texts mean the same. Raises NotExactError."""
    try:
        return _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise NotExactError(type(error).__name__) from None


def same_json(one: str, other: str) -> bool:
    """Whether two texts are the same, or JSON that means the same."""
    if one == other:
        return True
    try:
        return bool(exact_value(one) == exact_value(other))
    except (NotExactError, RecursionError):
        return False


def same_value(one: Any, other: Any) -> bool:
    """Whether two parsed values are the same with their types; the order of keys does not count."""
    try:
        return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return False


def _number(lexeme: str) -> tuple[str, str]:
    return "number", lexeme


def _constant(name: str) -> Any:
    raise NotExactError(name)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise NotExactError("a key twice")
    return members


_decoder = json.JSONDecoder(
    parse_int=_number, parse_float=_number, parse_constant=_constant, object_pairs_hook=_object
)
