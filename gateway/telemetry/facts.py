"""What is measured of one request that has ended, derived once for everyone who is told."""

from collections.abc import Mapping

import msgspec

from engine_adapters.base import ReuseReport, ReuseStatus, Tier
from engine_adapters.reuse.classes import ReuseClass, reuse_class
from gateway.telemetry.labels import OTHER, Bounded
from gateway.transport.record import RequestRecord
from gateway.transport.stages import Stages

_OPERATIONS = {"completions": "text_completion", "embeddings": "embeddings"}  # all others are chats


class RequestLabels(msgspec.Struct, frozen=True):
    """What requests are told apart by."""

    operation: str  # `gen_ai.operation.name`
    model: str  # one that is served, or `other`
    engine: str  # its name, or `none`
    route: str
    status: int
    outcome: str
    error: str | None  # its kind; None: it went well
    reuse_class: ReuseClass | None  # None: it was not answered

    @property
    def reuse_status(self) -> ReuseStatus:
        """What the engine said, if it can be right."""
        if self.reuse_class in ("not_reported", "inconsistent"):
            return self.reuse_class
        return "not_reported" if self.reuse_class is None else "reported"


class RequestFacts(msgspec.Struct, frozen=True):
    """One request. None: not known, and never 0."""

    labels: RequestLabels
    duration_s: float
    ttft_s: float | None
    time_per_output_token_s: float | None
    queued_s: float | None
    input_tokens: int | None
    output_tokens: int | None
    reuse: ReuseReport | None

    @property
    def told(self) -> ReuseReport | None:
        """The engine's report where it is one, and can be right."""
        return self.reuse if self.labels.reuse_status == "reported" else None

    @property
    def reused_tokens(self) -> int | None:
        """Where the engine reported consistently."""
        return None if self.told is None else self.told.reused

    @property
    def recomputed_tokens(self) -> int | None:
        """Prompt tokens that were prefilled; unknown where reused is."""
        reused = self.reused_tokens
        return None if reused is None or self.input_tokens is None else self.input_tokens - reused

    @property
    def by_tier(self) -> Mapping[Tier, int]:
        """Reused tokens by tier; empty where that was not said."""
        return {} if self.told is None else self.told.by_tier or {}


class FactsMaker:
    """Turns records into facts. Names that come from outside are bounded here."""

    def __init__(self) -> None:
        self._models = Bounded()
        self._engines = Bounded()
        self._errors = Bounded()

    def facts(self, record: RequestRecord, ended: float) -> RequestFacts | None:
        """The facts of a request that has ended at `ended`, as `time.perf_counter` says; None: none was for a model."""
        route = record.route
        if route is None:
            return None
        reuse, status = record.reuse, record.status or 0
        worked = record.stages.sent is not None and 0 < status < 400  # else nobody was served, warm or cold
        prompt = record.prompt_tokens if reuse is None or reuse.prompt is None else reuse.prompt
        labels = RequestLabels(
            _OPERATIONS.get(route, "chat"),
            # What a client asks for is its own text; a model that has an engine is the operator's.
            OTHER if record.engine is None else self._models(record.model or OTHER),
            "none" if record.engine is None else self._engines(record.engine),
            route,
            status,
            record.outcome,
            None if record.outcome == "ok" else self._errors(record.error or record.outcome),
            reuse_class(reuse, record.block_size) if worked else None,
        )
        return RequestFacts(
            labels,
            ended - record.started,
            record.ttft_s,
            _per_token(record.stages, record.completion_tokens, record.choices),
            record.stages.queued_s,
            _count(prompt) if worked else None,
            _count(record.completion_tokens) if worked else None,
            reuse if worked else None,
        )


def _count(tokens: int | None) -> int | None:
    """What an engine says may be anything; counters only go up."""
    return tokens if tokens is None or tokens >= 0 else None


def _per_token(stages: Stages, tokens: int | None, choices: int) -> float | None:
    """Seconds a token after the first one. Choices that run side by side would make a token look faster than it is."""
    if tokens is None or tokens < 2 or choices > 1:
        return None
    if stages.first_token is None or stages.last_token is None:
        return None
    return (stages.last_token - stages.first_token) / (tokens - 1)
