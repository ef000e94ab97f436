"""Anthropic messages bodies."""

from collections.abc import Iterator
from typing import Any, ClassVar

from canon.requests.chat import ChatView
from canon.requests.parts import text_slots
from canon.requests.view import Kind, TextSlot

_BLOCKS = frozenset(("tool_use", "tool_result", "thinking", "redacted_thinking"))


def is_messages_body(body: dict[str, Any]) -> bool:
    """Whether a body with `messages` is one of Anthropic's: it says so by `system`, by a tool or by a block."""
    if "system" in body or "anthropic_version" in body or "stop_sequences" in body:
        return True
    tools = body.get("tools")
    if isinstance(tools, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in tools):
        return True
    return any(_has_block(message) for message in body["messages"])


def _has_block(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(_type(part) in _BLOCKS for part in content)


def _type(part: Any) -> str | None:
    kind = part.get("type") if isinstance(part, dict) else None
    return kind if isinstance(kind, str) else None


class MessagesView(ChatView):
    """`system`, a string or blocks, in front of `messages`; tool results are blocks of user messages."""

    kind: ClassVar[Kind] = "messages"

    def _find_system_texts(self) -> list[TextSlot]:
        return [*self._system(), *super()._find_system_texts()]

    def texts(self) -> Iterator[TextSlot]:
        yield from self._system()
        yield from super().texts()

    def tool_results(self) -> list[TextSlot]:
        return [
            slot for turn in range(len(self.messages)) for slot in self._slots(turn) if slot.role == "tool"
        ]

    def _system(self) -> Iterator[TextSlot]:
        return text_slots(self.draft.body.get("system"), ("system",), "system", -1)

    def _slots(self, turn: int) -> list[TextSlot]:
        slots = super()._slots(turn)
        content = self.messages[turn].get("content") if self.role(turn) == "user" else None
        if not isinstance(content, list):
            return slots
        for index, part in enumerate(content):
            if _type(part) == "tool_result":
                path = ("messages", turn, "content", index, "content")
                slots += text_slots(part.get("content"), path, "tool", turn)
        slots.sort(key=lambda slot: slot.path[3])  # as they stand in the content
        return slots
