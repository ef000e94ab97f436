"""Chat Completions bodies."""

from collections.abc import Iterator
from typing import Any, ClassVar

from canon.requests.parts import text_slots
from canon.requests.paths import Path
from canon.requests.view import Kind, RequestView, Role, TextSlot

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


class ChatView(RequestView):
    """`messages` with roles; content is a string or a list of parts."""

    kind: ClassVar[Kind] = "chat"

    @property
    def messages(self) -> list[Any]:
        messages: list[Any] = self.draft.body["messages"]
        return messages

    def role(self, turn: int) -> Role | None:
        message = self.messages[turn]
        role = message.get("role") if isinstance(message, dict) else None
        return _ROLES.get(role) if isinstance(role, str) else None

    def _find_system_texts(self) -> list[TextSlot]:
        slots: list[TextSlot] = []
        for turn in range(len(self.messages)):
            if self.role(turn) != "system":
                break
            slots += self._slots(turn)
        return slots

    def texts(self) -> Iterator[TextSlot]:
        for turn in range(len(self.messages)):
            yield from self._slots(turn)

    def tool_results(self) -> list[TextSlot]:
        return [
            slot
            for turn in range(len(self.messages))
            if self.role(turn) == "tool"
            for slot in self._slots(turn)
        ]

    def newest_turn(self) -> Path | None:
        for turn in range(len(self.messages) - 1, -1, -1):
            if self.role(turn) in ("user", "tool"):
                return ("messages", turn)
        return None

    def _slots(self, turn: int) -> list[TextSlot]:
        role = self.role(turn)
        if role is None:
            return []
        return list(text_slots(self.messages[turn].get("content"), ("messages", turn, "content"), role, turn))
