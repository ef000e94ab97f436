"""`chat.completion.chunk` frames."""

from collections.abc import Sequence
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
from gateway.transport.sse import frame
from gateway.wire.answers import AnswerHead, StreamedAnswer
from gateway.wire.logprobs import chat_logprobs
from gateway.wire.usage import usage_object


class ChatStream(StreamedAnswer):
    """The first chunk of each choice has the role; a usage chunk comes last where it was asked for."""

    def __init__(self, head: AnswerHead, *, logprobs: bool, include_usage: bool) -> None:
        super().__init__(head)
        self._chunk_head: dict[str, Any] = {
            "id": head.id,
            "object": "chat.completion.chunk",
            "created": head.created,
            "model": head.model,
        }
        self._tail: dict[str, Any] = {"usage": None} if include_usage else {}
        self._logprobs = logprobs
        self._include_usage = include_usage
        self._opened: set[int] = set()

    def frames(self, source: int, event: Event) -> bytes:
        if isinstance(event, Usage):
            self.usages.append(event)
            return b""
        opening = b"" if event.index in self._opened else self._open(event)
        if isinstance(event, Finished):
            return opening + self._chunk(event.index, {}, finish_reason=event.reason)
        delta = _delta(event)
        if not delta and not (self._logprobs and event.logprobs):
            return opening
        return opening + self._chunk(event.index, delta, event.logprobs)

    def last_frames(self) -> bytes:
        if not self._include_usage:
            return b""
        return frame({**self._chunk_head, "choices": [], "usage": usage_object(self.usages, self.facts)})

    def _open(self, event: TextDelta | ReasoningDelta | ToolCallDelta | Finished) -> bytes:
        self._opened.add(event.index)
        content = None if isinstance(event, ToolCallDelta) else ""
        return self._chunk(event.index, {"role": "assistant", "content": content})

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: Sequence[TokenLogprob] = (),
        finish_reason: str | None = None,
    ) -> bytes:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": chat_logprobs(logprobs) if self._logprobs and logprobs else None,
            "finish_reason": finish_reason,
        }
        return frame({**self._chunk_head, "choices": [choice], **self._tail})


def _delta(event: TextDelta | ReasoningDelta | ToolCallDelta) -> dict[str, Any]:
    if isinstance(event, TextDelta):
        return {"content": event.text} if event.text else {}
    if isinstance(event, ReasoningDelta):
        return {"reasoning_content": event.text} if event.text else {}
    function: dict[str, Any] = {"arguments": event.arguments}
    call: dict[str, Any] = {"index": event.call, "function": function}
    if event.name is not None:
        function["name"] = event.name
    if event.id is not None:
        call |= {"id": event.id, "type": "function"}
    return {"tool_calls": [call]} if event.arguments or len(call) > 2 or event.name else {}
