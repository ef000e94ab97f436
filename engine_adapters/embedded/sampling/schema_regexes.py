"""Bounds on what a schema's strings and numbers may cost to compile.

The grammar library turns `pattern` and `multipleOf` into automata and looks, before the first token, whether they
match anything at all. For several of them at once that look takes time exponential in their number, and for a
large `multipleOf` time that grows faster than the number does; nothing can interrupt it.
"""

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from engine_adapters.errors import InvalidRequestError

MAX_COMBINED_PATTERNS = 12  # 15 take under 0.1 s, each one more doubles it
MAX_MULTIPLE = 100_000  # 0.3 s; ten times as much takes 6 s

_COMBINING = frozenset(("allOf", "anyOf", "oneOf", "$ref"))
_ANNOTATIONS = frozenset(
    (
        "$comment",
        "$defs",
        "$id",
        "$schema",
        "default",
        "definitions",
        "deprecated",
        "description",
        "examples",
        "title",
    )
)


def check_regexes(schema: Any, param: str) -> None:
    """Refuse patterns and multiples that take too long together. `schema`: JSON, or several in a list.

    Where a schema combines others, any of its patterns may meet any other one: how they meet is not followed.

    Raises:
        InvalidRequestError: with `param`.
    """
    objects = list(_objects(schema))
    combined = any(map(_combines, objects))
    patterns = {o["pattern"] for o in objects if isinstance(o.get("pattern"), str)}
    if combined and len(patterns) > MAX_COMBINED_PATTERNS:
        message = (
            f"a schema that combines schemas (allOf, anyOf, oneOf, $ref) has {len(patterns)} patterns, "
            f"{MAX_COMBINED_PATTERNS} are allowed"
        )
        raise InvalidRequestError(message, param=param)
    together = 1
    for multiple in (_integer(o["multipleOf"]) for o in objects if _is_multiple(o.get("multipleOf"))):
        together = math.lcm(together, multiple) if combined else multiple
        if together > MAX_MULTIPLE and not _is_power_of_ten(together):
            raise InvalidRequestError(f"'multipleOf' is too large: {MAX_MULTIPLE} is the limit", param=param)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield value
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)


def _combines(schema: dict[str, Any]) -> bool:
    """Whether one text may have to follow two schemas at once."""
    every = schema.get("allOf")
    if isinstance(every, list) and len(every) > 1:
        return True
    return not _COMBINING.isdisjoint(schema) and len(schema.keys() - _ANNOTATIONS) > 1


def _is_multiple(value: Any) -> bool:
    """Anything else is refused by the library."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return (whole or (isinstance(value, float) and math.isfinite(value))) and value > 0


def _integer(multiple: float) -> int:
    """Without its decimal point: 0.25 is 25, and 250 is 250."""
    if isinstance(multiple, int):
        return multiple
    number = Decimal(repr(multiple))
    places = max(-int(number.normalize().as_tuple().exponent), 0)
    return int(number.scaleb(places))


def _is_power_of_ten(number: int) -> bool:
    """Their automata only look at zeros."""
    while number % 10 == 0:
        number //= 10
    return number == 1
