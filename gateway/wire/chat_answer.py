"""A whole `chat.completion`."""

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
from gateway.wire.answers import AnswerHead, WholeAnswer
from gateway.wire.logprobs import chat_logprobs
from gateway.wire.usage import usage_object


@dataclass(slots=True)
class _Call:
    id: str | None = None
    name: str | None = None
    arguments: list[str] = field(default_factory=list)

    def wire(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(slots=True)
class _Choice:
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, _Call] = field(default_factory=dict)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None

    def message(self) -> dict[str, Any]:
        text = "".join(self.text)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if self.calls:
            message["content"] = text or None
            message["tool_calls"] = [call.wire() for _, call in sorted(self.calls.items())]
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        return message


class WholeChat(WholeAnswer):
    """Collects the events of one chat request."""

    def __init__(self, head: AnswerHead, *, logprobs: bool) -> None:
        super().__init__(head)
        self._logprobs = logprobs
        self._choices = [_Choice() for _ in range(head.choices)]

    def add(self, source: int, event: Event) -> None:
        if isinstance(event, Usage):
            self.usages.append(event)
            return
        choice = self._choices[event.index]
        if isinstance(event, Finished):
            choice.finish_reason = event.reason
            return
        if self._logprobs:
            choice.logprobs += event.logprobs
        if isinstance(event, TextDelta):
            choice.text.append(event.text)
        elif isinstance(event, ReasoningDelta):
            choice.reasoning.append(event.text)
        else:
            _add_call(choice, event)

    def body(self) -> dict[str, Any]:
        choices = [
            {
                "index": index,
                "message": choice.message(),
                "logprobs": chat_logprobs(choice.logprobs) if self._logprobs else None,
                "finish_reason": choice.finish_reason,
            }
            for index, choice in enumerate(self._choices)
        ]
        return {
            "id": self.head.id,
            "object": "chat.completion",
            "created": self.head.created,
            "model": self.head.model,
            "choices": choices,
            "usage": usage_object(self.usages, self.facts),
        }


def _add_call(choice: _Choice, delta: ToolCallDelta) -> None:
    call = choice.calls.setdefault(delta.call, _Call())
    call.id = call.id or delta.id
    call.name = call.name or delta.name
    call.arguments.append(delta.arguments)
