"""A whole `text_completion`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine_adapters.base import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from engine_adapters.errors import EngineFailureError
from gateway.wire.answers import AnswerHead, WholeAnswer
from gateway.wire.logprobs import LegacyLogprobs
from gateway.wire.usage import usage_object


def completion_text(event: TextDelta | ReasoningDelta | ToolCallDelta) -> str:
    """The text of an event of a plain completion, where nothing is parsed out of it."""
    if isinstance(event, ToolCallDelta):
        raise EngineFailureError("a tool call came from a plain completion")
    return event.text


@dataclass(slots=True)
class _Choice:
    text: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None


class WholeCompletion(WholeAnswer):
    """Collects the events of all prompts; choice `j` of prompt `i` has index `i * n + j`."""

    def __init__(self, head: AnswerHead, *, echoes: Sequence[str], logprobs: bool) -> None:
        super().__init__(head)
        self._echoes = echoes  # one a prompt, empty where nothing is echoed
        self._logprobs = logprobs
        self._choices = [_Choice() for _ in range(len(echoes) * head.choices)]

    def add(self, source: int, event: Event) -> None:
        if isinstance(event, Usage):
            self.usages.append(event)
            return
        choice = self._choices[source * self.head.choices + event.index]
        if isinstance(event, Finished):
            choice.finish_reason = event.reason
            return
        choice.text.append(completion_text(event))
        choice.logprobs += event.logprobs

    def body(self) -> dict[str, Any]:
        return {
            "id": self.head.id,
            "object": "text_completion",
            "created": self.head.created,
            "model": self.head.model,
            "choices": [self._wire(index, choice) for index, choice in enumerate(self._choices)],
            "usage": usage_object(self.usages, self.facts),
        }

    def _wire(self, index: int, choice: _Choice) -> dict[str, Any]:
        echo = self._echoes[index // self.head.choices]
        return {
            "index": index,
            "text": echo + "".join(choice.text),
            "logprobs": LegacyLogprobs(len(echo)).take(choice.logprobs) if self._logprobs else None,
            "finish_reason": choice.finish_reason,
        }
