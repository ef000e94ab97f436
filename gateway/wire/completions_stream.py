"""`text_completion` chunks."""

from collections.abc import Sequence
from typing import Any

from engine_adapters.base import Event, Finished, TokenLogprob, Usage
from gateway.transport.sse import frame
from gateway.wire.answers import AnswerHead, StreamedAnswer
from gateway.wire.completions_answer import completion_text
from gateway.wire.logprobs import LegacyLogprobs
from gateway.wire.usage import usage_object


class CompletionStream(StreamedAnswer):
    """Chunks of all prompts, interleaved; choice `j` of prompt `i` has index `i * n + j`."""

    def __init__(
        self, head: AnswerHead, *, echoes: Sequence[str], logprobs: bool, include_usage: bool
    ) -> None:
        super().__init__(head)
        self._chunk_head: dict[str, Any] = {
            "id": head.id,
            "object": "text_completion",
            "created": head.created,
            "model": head.model,
        }
        self._tail: dict[str, Any] = {"usage": None} if include_usage else {}
        self._n = head.choices
        self._include_usage = include_usage
        self._unsent_echo = {
            source * self._n + choice: echo
            for source, echo in enumerate(echoes)
            for choice in range(self._n)
            if echo
        }
        self._logprobs = (
            [LegacyLogprobs(len(echo)) for echo in echoes for _ in range(self._n)] if logprobs else None
        )

    def frames(self, source: int, event: Event) -> bytes:
        if isinstance(event, Usage):
            self.usages.append(event)
            return b""
        index = source * self._n + event.index
        echo = self._unsent_echo.pop(index, "")
        opening = self._chunk(index, echo) if echo else b""
        if isinstance(event, Finished):
            return opening + self._chunk(index, "", finish_reason=event.reason)
        text = completion_text(event)
        if not text and not (self._logprobs and event.logprobs):
            return opening
        return opening + self._chunk(index, text, event.logprobs)

    def last_frames(self) -> bytes:
        return frame(self.usage_chunk()) if self._include_usage else b""

    def usage_chunk(self) -> dict[str, Any]:
        """The last chunk, for who wants usage."""
        return {**self._chunk_head, "choices": [], "usage": usage_object(self.usages, self.facts)}

    def _chunk(
        self,
        index: int,
        text: str,
        logprobs: Sequence[TokenLogprob] = (),
        finish_reason: str | None = None,
    ) -> bytes:
        choice = {
            "index": index,
            "text": text,
            "logprobs": self._logprobs[index].take(logprobs) if self._logprobs and logprobs else None,
            "finish_reason": finish_reason,
        }
        return frame({**self._chunk_head, "choices": [choice], **self._tail})
