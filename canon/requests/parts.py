"""Content: a string, or a list of parts some of which are text."""

from collections.abc import Iterator
from typing import Any

from canon.requests.paths import Path
from canon.requests.view import Role, TextSlot

# Names of the parts that are text, of Chat Completions and Anthropic messages, and of Responses.
_TEXT = frozenset(("text", "input_text", "output_text"))


def text_slots(content: Any, path: Path, role: Role, turn: int) -> Iterator[TextSlot]:
    """The texts of the content at `path`; what has another shape is not shown."""
    if isinstance(content, str):
        yield TextSlot(path, content, role, turn)
    elif isinstance(content, list):
        for index, part in enumerate(content):
            if isinstance(part, dict) and is_text(part):
                yield TextSlot((*path, index, "text"), part["text"], role, turn)


def is_text(part: dict[str, Any]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and kind in _TEXT and isinstance(part.get("text"), str)
