"""A request while the engine works on it, and what it gives back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine_adapters.base import FinishReason, GenerateRequest, Tier, TokenLogprob
from engine_adapters.embedded.sequence import Sequence
from engine_adapters.errors import EngineError


@dataclass(frozen=True, slots=True)
class Output:
    """What one step brought for one choice; `finish` on its last one."""

    index: int
    text: str
    tokens: int = 0  # how many were sampled for this text
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: FinishReason | None = None
    stop: str | int | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """Every choice has finished. Token counts for the request's usage."""

    prompt_tokens: int
    completion_tokens: int
    reused_tokens: int
    reused_by_tier: Mapping[Tier, int]  # sums to reused_tokens
    matched_tokens: int  # prompt tokens whose KV some tier had; reused or not
    queue_s: float | None  # seconds until the choice that prefills was admitted


Sink = Callable[[Output | Done | EngineError], None]  # called on the engine's thread; must return at once


@dataclass(eq=False, slots=True)
class Job:
    """A request's open choices and the way back to whoever asked."""

    request: GenerateRequest
    sink: Sink
    open: dict[int, Sequence]  # choices that have not finished
    leader: Sequence  # the choice that prefills for all
    completion_tokens: int = 0
    reused: int | None = None  # prompt tokens whose prefill no choice needed; None before the first token

    @property
    def id(self) -> str:
        """The request's id, unique among running requests."""
        return self.request.request_id

    def note_reused(self, tokens: int) -> None:
        """One choice reused that many prompt tokens; a choice that computed some again counts for the request."""
        self.reused = tokens if self.reused is None else min(self.reused, tokens)


@dataclass(slots=True)
class EngineCounters:
    """Since the engine started."""

    requests: int = 0
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    matched_tokens: int = (
        0  # prompt tokens whose KV was there; a hybrid model reuses as far as it has a state, too
    )
    reused_tokens: int = 0
    recomputed_tokens: int = 0
    completion_tokens: int = 0
    steps: int = 0
