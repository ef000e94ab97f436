"""One view over the four kinds of request bodies: where their texts, tools and turns are."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from canon.requests.draft import Draft
from canon.requests.paths import Path

Kind = Literal["chat", "completions", "responses", "messages"]
Role = Literal["system", "user", "assistant", "tool"]  # `developer` counts as system


@dataclass(frozen=True, slots=True)
class TextSlot:
    """One string in a request: a message's content, or one text part of it."""

    path: Path
    text: str
    role: Role
    turn: int  # index of its message or input item; -1: outside them (`system`, `instructions`)


class RequestView(ABC):
    """Reads through a draft, so it shows what was set before. What has an unexpected shape is not shown at all."""

    kind: ClassVar[Kind]
    text_type: ClassVar[str] = "text"  # the `type` of a text part that is added to a turn

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._system_texts: tuple[int, Sequence[TextSlot]] = (-1, ())  # as of this version of the draft

    def system_texts(self) -> Sequence[TextSlot]:
        """The texts in front of the conversation, which rules may edit; late system messages are not among them."""
        if self._system_texts[0] != self.draft.version:
            self._system_texts = (self.draft.version, tuple(self._find_system_texts()))
        return self._system_texts[1]

    @abstractmethod
    def _find_system_texts(self) -> Iterable[TextSlot]:
        """What `system_texts` gives, in order."""

    @abstractmethod
    def texts(self) -> Iterator[TextSlot]:
        """Every text of the conversation in order, the system texts first."""

    @abstractmethod
    def tool_results(self) -> list[TextSlot]:
        """What tools answered."""

    @abstractmethod
    def newest_turn(self) -> Path | None:
        """The message or item that a tail note goes into: the last user turn, or, in a tool loop, the newest tool
        result behind it; None where there is neither."""

    def tools(self) -> list[Any]:
        """The tools as they came; empty where there are none."""
        tools = self.draft.body.get("tools")
        return tools if isinstance(tools, list) else []
