"""Metrics of requests for Prometheus: names of the GenAI semantic conventions where they have one, else our own.

OpenTelemetry's `gen_ai.server.time_to_first_token` in seconds is `gen_ai_server_time_to_first_token_seconds` here, and
its attribute `gen_ai.request.model` the label `gen_ai_request_model`, as OpenTelemetry's own exporters write them. The
conventions count 0 where nothing is known of reuse; what begins with `kvgate_` tells both apart.
"""

from collections.abc import Sequence
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram

from engine_adapters.reuse.classes import ReuseClass
from gateway.telemetry.buckets import (
    QUEUE,
    REQUEST_DURATION,
    TIME_PER_OUTPUT_TOKEN,
    TIME_TO_FIRST_TOKEN,
    TOKEN_USAGE,
)
from gateway.telemetry.facts import RequestFacts, reported
from gateway.telemetry.labels import Bounded, Series
from gateway.transport.record import CanonTold

_WHO = ("gen_ai_operation_name", "gen_ai_request_model", "kvgate_engine")
_CLASS = "kvgate_reuse_class"
_TIER = "kvgate_tier"

Number = TypeVar("Number", int, float)


class RequestMetrics:
    """Counts requests that have ended. Called from one thread; read from any."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ended: list[RequestFacts] = []

        def counter(name: str, text: str, *labels: str) -> Series[Counter]:
            return Series(Counter(name, text, labels, registry=registry))

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Series[Histogram]:
            return Series(Histogram(name, text, labels, buckets=buckets, registry=registry))

        self._requests = counter(
            "kvgate_requests", "Requests that have ended.", *_WHO, "route", "status", "outcome"
        )
        self._input = counter(
            "gen_ai_client_inference_usage_input_tokens",
            "Prompt tokens of all requests, reused ones among them.",
            *_WHO,
        )
        self._output = counter(
            "gen_ai_client_inference_usage_output_tokens",
            "Generated tokens of all requests that said how many.",
            *_WHO,
        )
        self._usage = histogram(
            "gen_ai_client_token_usage",
            "Tokens of one request, input and output apart.",
            TOKEN_USAGE,
            *_WHO,
            "gen_ai_token_type",
        )
        self._reused = counter(
            "kvgate_reused_tokens", "Prompt tokens not computed again, of requests that reported.", *_WHO
        )
        self._recomputed = counter(
            "kvgate_recomputed_tokens", "Prompt tokens that were prefilled, of requests that reported.", *_WHO
        )
        self._by_tier = counter(
            "kvgate_reused_tokens_by_tier", "Reused tokens where the engine told tiers apart.", *_WHO, _TIER
        )
        self._status = counter(
            "kvgate_reuse_reports", "Requests by what the engine said of reuse.", *_WHO, "kvgate_reuse_status"
        )
        self._classes = counter(
            "kvgate_requests_by_reuse", "Requests by how much of what could be reused was.", *_WHO, _CLASS
        )
        self._duration = histogram(
            "gen_ai_server_request_duration_seconds",
            "From a request's first byte to the last of its answer.",
            REQUEST_DURATION,
            *_WHO,
            "outcome",
        )
        self._ttft = histogram(
            "gen_ai_server_time_to_first_token_seconds",
            "From a request's first byte to the first token.",
            TIME_TO_FIRST_TOKEN,
            *_WHO,
            _CLASS,
        )
        self._per_token = histogram(
            "gen_ai_server_time_per_output_token_seconds",
            "Decoding, a token after the first one; requests of one choice.",
            TIME_PER_OUTPUT_TOKEN,
            *_WHO,
        )
        self._queue = histogram(
            "kvgate_engine_queue_seconds", "Waiting in the engine, where it says so.", QUEUE, *_WHO
        )
        self._canon = CanonMetrics(registry)

    def ended(self, facts: RequestFacts) -> None:
        """Count one request, once it is settled. What is not known is not counted, not even as 0."""
        self._ended.append(facts)

    def settle(self) -> None:
        """Behind the last one of a batch: requests of the same labels, as most are, are counted together."""
        ended, self._ended = self._ended, []
        alike: dict[tuple[object, ...], list[RequestFacts]] = {}
        for facts in ended:
            labels = (
                facts.operation, facts.model, facts.engine, facts.route, facts.status, facts.outcome,
                facts.reuse_class,
            )  # fmt: skip
            alike.setdefault(labels, []).append(facts)
        for some in alike.values():
            self._count(some)

    def _count(self, some: Sequence[RequestFacts]) -> None:
        one = some[0]
        who = (one.operation, one.model, one.engine)
        self._requests(*who, one.route, str(one.status), one.outcome).inc(len(some))
        _observe(self._duration(*who, one.outcome), [each.duration_s for each in some])
        for each in some:
            if each.canon is not None:
                self._canon.ended(each.canon)
        if one.reuse_class is None:
            return
        self._count_reuse(some, one.reuse_class, who)
        self._count_tokens([each.input_tokens for each in some], self._input, "input", who)
        self._count_tokens([each.output_tokens for each in some], self._output, "output", who)
        if ttfts := _known([each.ttft_s for each in some]):
            _observe(self._ttft(*who, one.reuse_class), ttfts)
        if per_token := _known([each.time_per_output_token_s for each in some]):
            _observe(self._per_token(*who), per_token)
        if queued := _known([each.queued_s for each in some]):
            _observe(self._queue(*who), queued)

    def _count_tokens(
        self, counts: Sequence[int | None], total: Series[Counter], kind: str, who: tuple[str, str, str]
    ) -> None:
        if tokens := _known(counts):
            total(*who).inc(sum(tokens))
            _observe(self._usage(*who, kind), tokens)

    def _count_reuse(
        self, some: Sequence[RequestFacts], known: ReuseClass, who: tuple[str, str, str]
    ) -> None:
        self._status(*who, some[0].reuse_status).inc(len(some))
        self._classes(*who, known).inc(len(some))
        told = reported(some)
        if told:
            self._reused(*who).inc(sum([reused for reused, _, _ in told]))
            self._recomputed(*who).inc(sum([recomputed for _, recomputed, _ in told]))
        for _, _, tiers in told:
            for tier, tokens in tiers.items():
                self._by_tier(*who, tier).inc(tokens)


def _known(values: Sequence[Number | None]) -> list[Number]:
    return [value for value in values if value is not None]


def _observe(histogram: Histogram, values: Sequence[float]) -> None:
    for value in values:
        histogram.observe(value)


class CanonMetrics:
    """What canon did, and what it would have done."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._edits = Counter(
            "kvgate_canon_edits",
            "Edits by rule; applied=false: they were only counted.",
            ("rule", "applied"),
            registry=registry,
        )
        self._findings = Counter(
            "kvgate_canon_findings", "What breaks prefixes and was left alone.", ("cause",), registry=registry
        )
        self._bypassed = Counter(
            "kvgate_canon_bypassed",
            "Bodies that could not be written again without a loss.",
            registry=registry,
        )
        self._gained = Counter(
            "kvgate_canon_gain_tokens",
            "Tokens that edits would have let be reused, estimated.",
            registry=registry,
        )
        self._lost = Counter(
            "kvgate_canon_lost_tokens",
            "Tokens that edits would have kept from being reused, estimated.",
            registry=registry,
        )
        self._rules = Bounded()
        self._causes = Bounded()

    def ended(self, told: CanonTold) -> None:
        """Count what was done to one request."""
        applied = "true" if told.applied else "false"
        for rule, count in told.edits.items():
            self._edits.labels(self._rules(rule), applied).inc(count)
        for cause, count in told.findings.items():
            self._findings.labels(self._causes(cause)).inc(count)
        if told.bypassed:
            self._bypassed.inc()
        gain = told.gain_tokens or 0
        if gain:
            (self._gained if gain > 0 else self._lost).inc(abs(gain))
