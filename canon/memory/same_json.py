"""JSON values compared by what they mean: number lexemes count, key order and spacing do not."""

import json
from typing import Any

from canon.errors import JsonRefusedError
from canon.lossless import canonical


def same_json(one: str, other: str) -> bool:
    """Whether two texts are the same, or JSON that means the same."""
    if one == other:
        return True
    try:
        return canonical(one) == canonical(other)
    except JsonRefusedError:
        return False


def same_value(one: Any, other: Any) -> bool:
    """Whether two parsed values are the same with their types; the order of keys does not count."""
    try:
        return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return False
