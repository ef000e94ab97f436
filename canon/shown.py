"""Values as edits show them."""

import json
from typing import Any


def json_of(value: Any) -> str:
    """The JSON of a value of a request, for people to read; of what JSON cannot say, a word about it."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        return f"({type(value).__name__} that cannot be shown: {type(error).__name__})"
