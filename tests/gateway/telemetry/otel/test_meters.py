"""Metrics of requests as they are sent are those that the SDK's own instruments would make."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
)
from opentelemetry.sdk.resources import Resource

from gateway.settings import GatewaySettings
from gateway.telemetry.facts import RequestFacts
from gateway.telemetry.otel.exporting import resource_of
from gateway.telemetry.otel.meters import Meters, Recorded
from gateway.telemetry.otel.options import OtelOptions, otel_options
from gateway.telemetry.tally import Tally
from tests.gateway.running_server import running
from tests.gateway.telemetry.collector import collector
from tests.gateway.telemetry.made_facts import alike, facts, some_facts

DURATION, TOKENS = "gen_ai.server.request.duration", "gen_ai.client.inference.usage.input_tokens"


def points(metrics: Sequence[Metric]) -> dict[tuple[str, str, str, Any], Any]:
    """Histograms' points by metric and attributes."""
    return {
        (metric.name, metric.unit, metric.description, frozenset(point.attributes.items())): (
            point.count,
            pytest.approx(point.sum),
            list(point.bucket_counts),
            tuple(point.explicit_bounds),
            point.min,
            point.max,
        )
        for metric in metrics
        for point in metric.data.data_points
        if isinstance(point, HistogramDataPoint)
    }


@given(st.lists(st.lists(some_facts(), max_size=6), max_size=4))
def test_histograms_are_those_of_instruments_that_are_told_every_number(
    batches: list[list[RequestFacts]],
) -> None:
    reader, tally = InMemoryMetricReader(), Tally()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    recorded, ours = Recorded(provider.get_meter("test")), Meters(tally, delta=False)
    for batch in batches:
        recorded.settle(alike(batch))
        tally.add(alike(batch))
    data = reader.get_metrics_data()
    provider.shutdown()
    theirs = [] if data is None else data.resource_metrics[0].scope_metrics[0].metrics
    assert points(ours.metrics()) == points(theirs)


def only(metrics: Sequence[Metric], name: str) -> Metric:
    (found,) = (each for each in metrics if each.name == name)
    return found


def test_all_so_far_are_sent_again_and_again() -> None:
    tally = Tally()
    meters = Meters(tally, delta=False)
    assert meters.metrics() == []
    sent = []
    for _ in range(2):
        tally.add(alike([facts(input_tokens=10)]))
        sent.append(meters.metrics())
    first, second = (only(metrics, TOKENS).data for metrics in sent)
    assert first.aggregation_temporality is AggregationTemporality.CUMULATIVE
    assert [each.data_points[0].value for each in (first, second)] == [10, 20]
    assert first.data_points[0].start_time_unix_nano == second.data_points[0].start_time_unix_nano
    assert only(sent[1], DURATION).data.data_points[0].count == 2


def test_those_since_the_last_time_are_sent_once() -> None:
    meters = Meters(Tally(), delta=True)
    sent = []
    for seconds in (0.5, 3.0):
        meters.settle(alike([facts(input_tokens=10, duration_s=seconds)]))
        sent.append(meters.metrics())
    first, second = (only(metrics, DURATION).data.data_points[0] for metrics in sent)
    assert only(sent[0], DURATION).data.aggregation_temporality is AggregationTemporality.DELTA
    assert only(sent[1], TOKENS).data.data_points[0].value == 10
    assert [(each.count, each.min, each.max) for each in (first, second)] == [(1, 0.5, 0.5), (1, 3.0, 3.0)]
    assert second.start_time_unix_nano == first.time_unix_nano
    assert meters.metrics() == []


def sent_by_a_gateway(monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str]) -> dict[str, list[Any]]:
    """What has come when it has ended: it refused one request, and never answered any."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with collector() as kept:
        options = otel_options(os.environ, kept.url)
        with running(GatewaySettings(otel=options)) as server:
            assert server.http.post("/v1/chat/completions", content=b"{").status_code == 400
    return kept.points


def test_a_gateway_that_only_refused_sends_how_long_that_took(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sent_by_a_gateway(monkeypatch, {})
    assert [point.count for point in found[DURATION]] == [1]
    assert "kvgate.requests_by_reuse" not in found


def test_the_sdk_may_be_told_to_choose_the_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": "base2_exponential_bucket_histogram"}
    (point,) = sent_by_a_gateway(monkeypatch, asked)[DURATION]
    assert point.count == 1
    assert sum(point.positive.bucket_counts) == 1


def test_what_a_process_says_of_itself_is_found_by_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    ours = resource_of(OtelOptions(True, True, instance="1"))
    same = Resource(dict(ours.attributes), ours.schema_url)
    assert ours.attributes["deployment.environment.name"] == "test"
    assert (hash(ours), ours) == (hash(same), same)
    other = resource_of(OtelOptions(True, True, instance="2"))
    assert ours != other
    assert hash(ours) != hash(other)
