"""How events become an answer: one interface, two forms of it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from engine_adapters.base import Event, Usage
from gateway.wire.usage import UsageFacts


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What every object of one answer repeats."""

    id: str
    created: int  # Unix seconds
    model: str
    choices: int  # n, for each engine request


class Answer:
    """Root of both forms; `usages` fills with the last event of every engine request."""

    def __init__(self, head: AnswerHead) -> None:
        self.head = head
        self.usages: list[Usage] = []
        self.facts: UsageFacts | None = None  # set: `usage` tells all that is known


class WholeAnswer(Answer, ABC):
    """Collects events and gives one JSON object at the end."""

    @abstractmethod
    def add(self, source: int, event: Event) -> None:
        """Take an event of engine request `source`."""

    @abstractmethod
    def body(self) -> dict[str, Any]:
        """The answer, after the last event."""


class StreamedAnswer(Answer, ABC):
    """Turns each event into SSE frames at once."""

    @abstractmethod
    def frames(self, source: int, event: Event) -> bytes:
        """The frames of an event of engine request `source`; may be empty."""

    @abstractmethod
    def last_frames(self) -> bytes:
        """What comes after the last event and before `[DONE]`."""
