"""What the model produces, streamed or not, on its way into the memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from canon import ConversationMemory
from engine_adapters.base import Event
from gateway.wire.answers import WholeAnswer


@dataclass(frozen=True, slots=True)
class Recording:
    """Where the answer to one request is to be remembered."""

    memory: ConversationMemory
    body: Mapping[str, Any]  # as it was sent
    size: int  # bytes of the request
    scope: str
    session: str


class AnswerRecorder:
    """Collects the events of one request; its text is bounded as the answer is."""

    def __init__(self, recording: Recording, answer: WholeAnswer) -> None:
        self.recording = recording
        self._answer = answer

    def add(self, source: int, event: Event) -> None:
        """Take an event of engine request `source`."""
        self._answer.add(source, event)

    def keep(self) -> None:
        """Remember the answer, which is complete. Takes as long as hashing the request."""
        to = self.recording
        to.memory.record(to.body, self._answer.body(), to.scope, to.session)
