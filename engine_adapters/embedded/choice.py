"""One choice on its way to the client: its output pipeline and what is counted on the way."""

from engine_adapters.base import Event, FinishReason
from engine_adapters.embedded.job import Output
from engine_adapters.embedded.output.pipeline import OutputPipeline


class Choice:
    """Turns the engine's outputs into events, and says when nothing that follows can matter."""

    def __init__(self, pipeline: OutputPipeline) -> None:
        self._pipeline = pipeline
        self._finished = False
        self.reasoning_tokens = 0  # tokens spent on thinking, closing tag included

    @property
    def can_think(self) -> bool:
        """Whether this model and request have thinking at all."""
        return self._pipeline.can_think

    @property
    def complete(self) -> bool:
        """The output is whole, but the engine does not know it yet."""
        return self._pipeline.done and not self._finished

    def take(self, output: Output) -> list[Event]:
        """The events that one output brings; the last one of a choice is its Finished."""
        was_thinking = self._pipeline.thinking
        events = self._pipeline.push(output.text, output.logprobs)
        if was_thinking or self._pipeline.thinking:
            self.reasoning_tokens += output.tokens
        if output.finish is not None:
            self._finished = True
            # What came behind a complete output was never shown, nor is how that ended.
            reason: FinishReason = "stop" if self._pipeline.done else output.finish
            events += self._pipeline.finish(reason, output.stop)
        return events
