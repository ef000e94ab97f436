"""The tail note and how an item carries it."""

from collections.abc import Sequence
from typing import Any


def compose(texts: Sequence[str]) -> str:
    return "[context]\n" + "\n".join(text.strip("\n") for text in texts) + "\n[/context]"


def with_note(item: Any, note: str) -> Any:
    """The item with the note at its end; None where it cannot carry one."""
    if isinstance(item, str):
        return f"{item}\n\n{note}" if item else note
    if not isinstance(item, dict):
        return None
    if item.get("type") == "function_call_output":
        return _at(item, "output", note, "input_text", as_parts=True)
    return _at(item, "content", note, "text", as_parts=item.get("role") == "tool")


def _at(item: dict[str, Any], key: str, note: str, kind: str, *, as_parts: bool) -> Any:
    content = item.get(key)
    if isinstance(content, str):
        if not as_parts:
            return {**item, key: f"{content}\n\n{note}" if content else note}
        content = [{"type": kind, "text": content}]
    if not isinstance(content, list):
        return None
    if any(isinstance(part, dict) and part.get("type") == "input_text" for part in content):
        kind = "input_text"
    return {**item, key: [*content, {"type": kind, "text": note}]}
