"""How large a conversation may be, and how long a template may work on it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChatLimits:
    """Bounds of one chat rendering; anything past one of them is a `TemplateError`, never a hang."""

    messages: int = 20_000
    characters: int = (
        32 * 1024 * 1024
    )  # of all strings in messages and tools together, and of the rendered text
    depth: int = 100  # nested lists and objects; deeper ones would exhaust the interpreter's stack
    seconds: float = 10.0  # one rendering
