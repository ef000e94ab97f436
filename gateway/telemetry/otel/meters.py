"""Metrics of requests under the GenAI semantic conventions' names, as histograms and counters."""

from collections import Counter
from collections.abc import Sequence

from opentelemetry.metrics import Counter as Sum
from opentelemetry.metrics import Histogram, Meter

from engine_adapters.base import Tier
from gateway.telemetry.buckets import (
    QUEUE,
    REQUEST_DURATION,
    TIME_PER_OUTPUT_TOKEN,
    TIME_TO_FIRST_TOKEN,
    TOKEN_USAGE,
)
from gateway.telemetry.facts import RequestFacts, reported
from gateway.telemetry.otel.attributes import Attributes, error_type, who
from gateway.transport.record import RequestRecord


class Meters:
    """Counts requests that have ended, each once. What is not known is not counted, not even as 0."""

    def __init__(self, meter: Meter) -> None:
        def seconds(name: str, text: str, bounds: tuple[float, ...]) -> Histogram:
            return meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=bounds)

        def tokens(name: str, text: str) -> Sum:
            return meter.create_counter(name, "{token}", text)

        self._ended: list[RequestFacts] = []
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
        self._requests = meter.create_counter(
            "kvgate.requests_by_reuse", "{request}", "Requests by what is known of their reuse."
        )

    def ended(self, facts: RequestFacts, record: RequestRecord) -> None:
        """Count one request, once it is settled."""
        self._ended.append(facts)
        for stage in record.stages.timed:
            if stage.name == "queue":
                self._waits.record(
                    stage.end - stage.start, who(facts) | {"kvgate.tenant": record.tenant.name}
                )

    def settle(self) -> None:
        """Behind the last request of a batch: those with the same attributes, as most have, are counted together."""
        ended, self._ended = self._ended, []
        alike: dict[tuple[object, ...], list[RequestFacts]] = {}
        for facts in ended:
            told_apart_by = (facts.operation, facts.model, facts.engine, facts.error, facts.reuse_class)
            alike.setdefault(told_apart_by, []).append(facts)
        for some in alike.values():
            self._count(some)

    def _count(self, some: Sequence[RequestFacts]) -> None:
        one = some[0]
        about = who(one)
        _record(self._duration, [each.duration_s for each in some], about | error_type(one))
        if one.reuse_class is None:
            return
        reuse: Attributes = {"kvgate.reuse.status": one.reuse_status, "kvgate.reuse.class": one.reuse_class}
        self._requests.add(len(some), about | reuse)
        _record(self._ttft, [each.ttft_s for each in some], about | {"kvgate.reuse.class": one.reuse_class})
        _record(self._per_token, [each.time_per_output_token_s for each in some], about)
        _record(self._queue, [each.queued_s for each in some], about)
        self._count_tokens(some, about)

    def _count_tokens(self, some: Sequence[RequestFacts], about: Attributes) -> None:
        # Engines do not say how many tokens of a prompt are text.
        modality = about | {"gen_ai.token.modality": "unknown"}
        for counter, kind, counts in (
            (self._input, "input", [each.input_tokens for each in some]),
            (self._output, "output", [each.output_tokens for each in some]),
        ):
            if tokens := [count for count in counts if count is not None]:
                counter.add(sum(tokens), modality)
                _record(self._usage, tokens, about | {"gen_ai.token.type": kind})
        told = reported(some)
        if told:
            self._cache_read.add(sum([reused for reused, _, _ in told]), modality)
            self._recomputed.add(sum([recomputed for _, recomputed, _ in told]), about)
        by_tier: Counter[Tier] = Counter()
        for _, _, tiers in told:
            by_tier.update(tiers)
        for tier, count in by_tier.items():
            self._by_tier.add(count, about | {"kvgate.tier": tier})


def _record(histogram: Histogram, values: Sequence[float | None], attributes: Attributes) -> None:
    for value in values:
        if value is not None:
            histogram.record(value, attributes)
