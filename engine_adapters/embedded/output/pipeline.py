"""One choice's text, turned into the events a client gets."""

from engine_adapters.base import (
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolOptions,
)
from engine_adapters.embedded.output.reasoning import Answer, ReasoningParser, Thought
from engine_adapters.embedded.output.tool_parsers import (
    CallArguments,
    CallStart,
    ContentPiece,
    ToolParser,
    ToolPiece,
)


def reads_calls(tools: ToolOptions | None) -> bool:
    """Whether calls may be in an answer to a request with these tools; elsewhere their form is ordinary text."""
    return tools is not None and (tools.named or tools.choice != "none")


class OutputPipeline:
    """Thinking first, then content and tool calls; whatever was held back comes out at the end.

    Log probabilities travel with the next delta that comes out. A token may belong to text that is held back or
    dropped, so they need not line up with the delta's text; but each comes out exactly once.

    Args:
        tools: what the request offers; tool calls are read only where it does, and its choice is not "none".
        parser: fresh, for this choice alone; None: the model's form of tool calls is not known.
        reasoning: fresh, for this choice alone; None: thinking is ordinary content.
        index: which choice of the request.
    """

    def __init__(
        self,
        tools: ToolOptions | None = None,
        parser: ToolParser | None = None,
        reasoning: ReasoningParser | None = None,
        index: int = 0,
    ) -> None:
        self._parser = parser if reads_calls(tools) else None
        self._reasoning = reasoning
        self._index = index
        self._logprobs: list[TokenLogprob] = []  # not given out yet
        self._called = False

    @property
    def can_think(self) -> bool:
        """Whether thinking is told apart at all."""
        return self._reasoning is not None

    @property
    def thinking(self) -> bool:
        """Whether what was pushed last belongs to the model's thinking."""
        return self._reasoning is not None and self._reasoning.inside

    @property
    def done(self) -> bool:
        """True when nothing that follows can matter: the one call that is allowed is complete."""
        return self._parser is not None and self._parser.done

    def push(self, text: str, logprobs: tuple[TokenLogprob, ...] = ()) -> list[Event]:
        """Take the next text and the log probabilities of the tokens it came from; either may be empty."""
        self._logprobs.extend(logprobs)
        if not text:
            return []
        if self._reasoning is None:
            return self._joined(self._answer(text))
        return self._joined(self._split(self._reasoning.push(text)))

    def finish(self, reason: FinishReason, stop: str | int | None = None) -> list[Event]:
        """The choice ends; the last event is its Finished, whose "stop" becomes "tool_calls" after calls."""
        pieces: list[ToolPiece | Thought] = []
        if self._reasoning is not None:
            pieces += self._split(self._reasoning.finish())
        if self._parser is not None:
            pieces += self._parser.finish()
        events = self._joined(pieces)
        if self._logprobs:
            events.append(TextDelta(self._index, "", self._take_logprobs()))
        if self._called and reason == "stop":
            reason = "tool_calls"
        return [*events, Finished(self._index, reason, stop)]

    def _split(self, pieces: list[Thought | Answer]) -> list[ToolPiece | Thought]:
        out: list[ToolPiece | Thought] = []
        for piece in pieces:
            out += [piece] if isinstance(piece, Thought) else self._answer(piece.text)
        return out

    def _answer(self, text: str) -> list[ToolPiece | Thought]:
        return [ContentPiece(text)] if self._parser is None else [*self._parser.push(text)]

    def _joined(self, pieces: list[ToolPiece | Thought]) -> list[Event]:
        return [self._event(piece) for piece in _merge_content(pieces)]

    def _event(self, piece: ToolPiece | Thought) -> Event:
        logprobs = self._take_logprobs()
        match piece:
            case Thought(text):
                return ReasoningDelta(self._index, text, logprobs)
            case ContentPiece(text):
                return TextDelta(self._index, text, logprobs)
            case CallStart(call, call_id, name):
                self._called = True
                return ToolCallDelta(self._index, call, "", call_id, name, logprobs)
            case CallArguments(call, text):
                return ToolCallDelta(self._index, call, text, logprobs=logprobs)

    def _take_logprobs(self) -> tuple[TokenLogprob, ...]:
        taken = tuple(self._logprobs)
        self._logprobs.clear()
        return taken


def _merge_content(pieces: list[ToolPiece | Thought]) -> list[ToolPiece | Thought]:
    merged: list[ToolPiece | Thought] = []
    for piece in pieces:
        if merged and isinstance(piece, ContentPiece) and isinstance(merged[-1], ContentPiece):
            merged[-1] = ContentPiece(merged[-1].text + piece.text)
        else:
            merged.append(piece)
    return merged
