"""Metrics of requests for Prometheus: names of the GenAI semantic conventions where they have one, else our own.

OpenTelemetry's `gen_ai.server.time_to_first_token` in seconds is `gen_ai_server_time_to_first_token_seconds` here, and
its attribute `gen_ai.request.model` the label `gen_ai_request_model`, as OpenTelemetry's own exporters write them. The
conventions count 0 where nothing is known of reuse; what begins with `kvgate_` tells both apart.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gateway.telemetry.distribution import Distribution
from gateway.telemetry.facts import RequestLabels
from gateway.telemetry.tally import (
    Tallied,
    Tally,
    amounts,
    distributions,
    from_tier,
    recomputed,
    reused,
    tiers,
    total,
)

Labels: TypeAlias = tuple[str, ...]

_WHO = ("gen_ai_operation_name", "gen_ai_request_model", "kvgate_engine")
_CLASS = "kvgate_reuse_class"


def _who(labels: RequestLabels) -> Labels:
    return labels.operation, labels.model, labels.engine


def _by_class(labels: RequestLabels) -> Labels:
    return *_who(labels), str(labels.reuse_class)


class RequestMetrics(Collector):
    """What a tally says of requests that have ended. What is not known is not there, not even as 0."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def collect(self) -> Iterator[Metric]:
        """The families as they are now. Called on any thread."""
        now = self._tally.now()
        answered = [each for each in now if each.labels.reuse_class is not None]
        yield _counter(
            "kvgate_requests",
            "Requests that have ended.",
            (*_WHO, "route", "status", "outcome"),
            amounts(now, lambda it: (*_who(it), it.route, str(it.status), it.outcome), _requests),
        )
        yield from _tokens(answered)
        yield _counter(
            "kvgate_reuse_reports",
            "Requests by what the engine said of reuse.",
            (*_WHO, "kvgate_reuse_status"),
            amounts(answered, lambda it: (*_who(it), it.reuse_status), _requests),
        )
        yield _counter(
            "kvgate_requests_by_reuse",
            "Requests by how much of what could be reused was.",
            (*_WHO, _CLASS),
            amounts(answered, _by_class, _requests),
        )
        yield from _times(now, answered)


def _requests(each: Tallied) -> float:
    return each.requests


def _tokens(answered: Sequence[Tallied]) -> Iterator[Metric]:
    counter = partial(_who_counter, answered)
    yield counter(
        "gen_ai_client_inference_usage_input_tokens",
        "Prompt tokens of all requests, reused ones among them.",
        lambda each: total(each.input_tokens),
    )
    yield counter(
        "gen_ai_client_inference_usage_output_tokens",
        "Generated tokens of all requests that said how many.",
        lambda each: total(each.output_tokens),
    )
    yield _histogram(
        "gen_ai_client_token_usage",
        "Tokens of one request, input and output apart.",
        (*_WHO, "gen_ai_token_type"),
        distributions(answered, lambda it: (*_who(it), "input"), lambda each: each.input_tokens)
        | distributions(answered, lambda it: (*_who(it), "output"), lambda each: each.output_tokens),
    )
    yield counter(
        "kvgate_reused_tokens", "Prompt tokens not computed again, of requests that reported.", reused
    )
    yield counter(
        "kvgate_recomputed_tokens",
        "Prompt tokens that were prefilled, of requests that reported.",
        recomputed,
    )
    by_tier = {
        (*labels, tier): tokens
        for tier in tiers(answered)
        for labels, tokens in amounts(answered, _who, from_tier(tier)).items()
    }
    yield _counter(
        "kvgate_reused_tokens_by_tier",
        "Reused tokens where the engine told tiers apart.",
        (*_WHO, "kvgate_tier"),
        by_tier,
    )


def _times(now: Sequence[Tallied], answered: Sequence[Tallied]) -> Iterator[Metric]:
    yield _histogram(
        "gen_ai_server_request_duration_seconds",
        "From a request's first byte to the last of its answer.",
        (*_WHO, "outcome"),
        distributions(now, lambda it: (*_who(it), it.outcome), lambda each: each.duration_s),
    )
    yield _histogram(
        "gen_ai_server_time_to_first_token_seconds",
        "From a request's first byte to the first token.",
        (*_WHO, _CLASS),
        distributions(answered, _by_class, lambda each: each.ttft_s),
    )
    yield _histogram(
        "gen_ai_server_time_per_output_token_seconds",
        "Decoding, a token after the first one; requests of one choice.",
        _WHO,
        distributions(answered, _who, lambda each: each.time_per_output_token_s),
    )
    yield _histogram(
        "kvgate_engine_queue_seconds",
        "Waiting in the engine, where it says so.",
        _WHO,
        distributions(answered, _who, lambda each: each.queued_s),
    )


def _who_counter(
    answered: Sequence[Tallied], name: str, text: str, amount: Callable[[Tallied], float | None]
) -> Metric:
    return _counter(name, text, _WHO, amounts(answered, _who, amount))


def _counter(name: str, text: str, labels: Sequence[str], values: Mapping[Labels, float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for each, value in values.items():
        family.add_metric(each, value)
    return family


def _histogram(name: str, text: str, labels: Sequence[str], values: Mapping[Labels, Distribution]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for each, counted in values.items():
        bounds = [*map(floatToGoString, counted.bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(counted.counts), strict=True))
        family.add_metric(each, buckets, counted.sum)
    return family
