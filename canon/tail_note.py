"""The tail note: where moved values go, in the newest turn of a request.

Chat templates render tools behind the system text, so the end of the system message is not the end of what requests
share: the newest turn is the first place behind everything that they do.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from canon.context import RuleContext
from canon.requests.paths import Path
from canon.requests.view import RequestView

_OPENING, _CLOSING = "[context]", "[/context]"


def compose(texts: Sequence[str]) -> str:
    """The note that carries these texts, word for word."""
    return "\n".join((_OPENING, *(text.strip("\n") for text in texts), _CLOSING))


def with_note(item: Any, note: str) -> Any:
    """The message or input item with the note at its end; None where it cannot carry one.

    Text of a user turn stays the beginning of that turn's text; a tool's answer gets the note as a part of its own.
    """
    if isinstance(item, str):
        return f"{item}\n\n{note}" if item else note
    if not isinstance(item, dict):
        return None
    if item.get("type") in ("function_call_output", "custom_tool_call_output"):
        return _with_note_at(item, "output", note, "input_text", as_parts=True)
    return _with_note_at(item, "content", note, "text", as_parts=item.get("role") == "tool")


def _with_note_at(item: dict[str, Any], key: str, note: str, kind: str, *, as_parts: bool) -> Any:
    content = item.get(key)
    if isinstance(content, str):
        if not as_parts:
            return {**item, key: f"{content}\n\n{note}" if content else note}
        content = [{"type": kind, "text": content}]
    if not isinstance(content, list):
        return None
    if any(isinstance(part, dict) and str(part.get("type")).startswith("input_") for part in content):
        kind = "input_text"
    return {**item, key: [*content, {"type": kind, "text": note}]}


def carrier(view: RequestView) -> Path | None:
    """The turn that a note can go into; None: values have to stay where they are."""
    path = view.newest_turn()
    if path is None or with_note(view.draft.get(path), "") is None:
        return None
    return path


def place(context: RuleContext) -> None:
    """Put what was moved into the newest turn. Without a memory this is all there is to do."""
    path = carrier(context.view)
    if path is None or not context.moved:
        return
    note = compose([moved.text for moved in context.moved])
    context.draft.set(path, with_note(context.draft.get(path), note))


def settle(context: RuleContext) -> None:
    """Say in the edits where each moved text is now: the last text of the conversation that has it."""
    if not context.moved:
        return
    texts = list(context.view.texts())[::-1]
    for at, edit in enumerate(context.edits):
        if edit.moved_to is not None:
            slot = next((slot for slot in texts if edit.before.strip("\n") in slot.text), None)
            if slot is not None:
                context.edits[at] = replace(edit, moved_to=context.where(slot.path))
