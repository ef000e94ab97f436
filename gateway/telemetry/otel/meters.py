"""Metrics of requests under the GenAI semantic conventions' names, as histograms and counters."""

from opentelemetry.metrics import Counter, Histogram, Meter

from gateway.telemetry.buckets import (
    QUEUE,
    REQUEST_DURATION,
    TIME_PER_OUTPUT_TOKEN,
    TIME_TO_FIRST_TOKEN,
    TOKEN_USAGE,
)
from gateway.telemetry.facts import RequestFacts
from gateway.telemetry.otel.attributes import Attributes, Value, error_type, who
from gateway.transport.record import RequestRecord


class _Sum:
    """One counter. A batch is one addition for each set of attributes: the SDK takes microseconds for each."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._added: dict[tuple[tuple[str, Value], ...], int] = {}

    def add(self, amount: int, attributes: Attributes) -> None:
        key = tuple(attributes.items())
        self._added[key] = self._added.get(key, 0) + amount

    def settle(self) -> None:
        added, self._added = self._added, {}
        for key, amount in added.items():
            self._counter.add(amount, dict(key))


class Meters:
    """Counts requests that have ended, each once. What is not known is not counted, not even as 0."""

    def __init__(self, meter: Meter) -> None:
        def seconds(name: str, text: str, bounds: tuple[float, ...]) -> Histogram:
            return meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=bounds)

        self._sums: list[_Sum] = []

        def counter(name: str, unit: str, text: str) -> _Sum:
            self._sums.append(found := _Sum(meter.create_counter(name, unit, text)))
            return found

        def tokens(name: str, text: str) -> _Sum:
            return counter(name, "{token}", text)

        self._duration = seconds(
            "gen_ai.server.request.duration", "From first byte to last byte.", REQUEST_DURATION
        )
        self._ttft = seconds(
            "gen_ai.server.time_to_first_token", "From first byte to first token.", TIME_TO_FIRST_TOKEN
        )
        self._per_token = seconds(
            "gen_ai.server.time_per_output_token", "Decoding, after the first token.", TIME_PER_OUTPUT_TOKEN
        )
        self._queue = seconds("kvgate.engine.queue.duration", "Waiting in the engine.", QUEUE)
        self._waits = seconds(
            "kvgate.queue.wait.duration", "Waiting for a full engine, where one had to.", QUEUE
        )
        self._usage = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of one request.",
            explicit_bucket_boundaries_advisory=TOKEN_USAGE,
        )
        self._input = tokens("gen_ai.client.inference.usage.input_tokens", "Prompt tokens.")
        self._output = tokens("gen_ai.client.inference.usage.output_tokens", "Generated tokens.")
        self._cache_read = tokens(
            "gen_ai.client.inference.usage.cache_read.input_tokens",
            "Reused prompt tokens, of requests that reported.",
        )
        self._recomputed = tokens(
            "kvgate.recomputed_tokens", "Prefilled prompt tokens, of requests that reported."
        )
        self._by_tier = tokens("kvgate.reused_tokens_by_tier", "Reused tokens where tiers were told apart.")
        self._requests = counter(
            "kvgate.requests_by_reuse", "{request}", "Requests by what is known of their reuse."
        )

    def settle(self) -> None:
        """Behind the last request of a batch."""
        for each in self._sums:
            each.settle()

    def ended(self, facts: RequestFacts, record: RequestRecord) -> None:
        """Count one request, once it is settled."""
        about = who(facts)
        for stage in record.stages.timed:
            if stage.name == "queue":
                self._waits.record(stage.end - stage.start, about | {"kvgate.tenant": record.tenant.name})
        self._duration.record(facts.duration_s, about | error_type(facts))
        if facts.reuse_class is None:
            return
        reuse: Attributes = {
            "kvgate.reuse.status": facts.reuse_status,
            "kvgate.reuse.class": facts.reuse_class,
        }
        self._requests.add(1, about | reuse)
        if facts.ttft_s is not None:
            self._ttft.record(facts.ttft_s, about | {"kvgate.reuse.class": facts.reuse_class})
        if facts.time_per_output_token_s is not None:
            self._per_token.record(facts.time_per_output_token_s, about)
        if facts.queued_s is not None:
            self._queue.record(facts.queued_s, about)
        self._count_tokens(facts, about)

    def _count_tokens(self, facts: RequestFacts, about: Attributes) -> None:
        # Engines do not say how many tokens of a prompt are text.
        modality = about | {"gen_ai.token.modality": "unknown"}
        for counter, kind, tokens in (
            (self._input, "input", facts.input_tokens),
            (self._output, "output", facts.output_tokens),
        ):
            if tokens is not None:
                counter.add(tokens, modality)
                self._usage.record(tokens, about | {"gen_ai.token.type": kind})
        if facts.reused_tokens is None or facts.recomputed_tokens is None:
            return
        self._cache_read.add(facts.reused_tokens, modality)
        self._recomputed.add(facts.recomputed_tokens, about)
        for tier, tokens in facts.by_tier.items():
            self._by_tier.add(tokens, about | {"kvgate.tier": tier})
