"""Responses bodies."""

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
}


class ResponsesView(RequestView):
    """`instructions` in front of `input`: a string, which is a user turn, or items, not all of which are messages."""

    kind: ClassVar[Kind] = "responses"
    text_type: ClassVar[str] = "input_text"

    @property
    def items(self) -> list[Any]:
        items = self.draft.body.get("input")
        return items if isinstance(items, list) else []

    def role(self, turn: int) -> Role | None:
        item = self.items[turn]
        if not isinstance(item, dict):
            return None
        kind, role = item.get("type", "message"), item.get("role")
        if isinstance(kind, str) and kind.endswith("_call_output"):
            return "tool"
        return _ROLES.get(role) if kind == "message" and isinstance(role, str) else None

    def _find_system_texts(self) -> list[TextSlot]:
        slots = list(self._instructions())
        for turn in range(len(self.items)):
            if self.role(turn) != "system":
                break
            slots += self._slots(turn)
        return slots

    def texts(self) -> Iterator[TextSlot]:
        yield from self._instructions()
        yield from text_slots(self._plain_input(), ("input",), "user", 0)
        for turn in range(len(self.items)):
            yield from self._slots(turn)

    def tool_results(self) -> list[TextSlot]:
        return [
            slot for turn in range(len(self.items)) if self.role(turn) == "tool" for slot in self._slots(turn)
        ]

    def newest_turn(self) -> Path | None:
        if self._plain_input() is not None:
            return ("input",)
        for turn in range(len(self.items) - 1, -1, -1):
            if self.role(turn) in ("user", "tool"):
                return ("input", turn)
        return None

    def _instructions(self) -> Iterator[TextSlot]:
        instructions = self.draft.body.get("instructions")
        if isinstance(instructions, str):
            yield TextSlot(("instructions",), instructions, "system", -1)

    def _plain_input(self) -> str | None:
        text = self.draft.body.get("input")
        return text if isinstance(text, str) else None

    def _slots(self, turn: int) -> Iterator[TextSlot]:
        role = self.role(turn)
        if role is not None:
            key = "output" if role == "tool" else "content"
            yield from text_slots(self.items[turn].get(key), ("input", turn, key), role, turn)
