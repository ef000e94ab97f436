"""What is sampled is written down as the SDK would; what is not still has ids that the engine's spans go below."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.telemetry.facts import FactsMaker
from gateway.telemetry.otel.spans import Spans
from gateway.transport.record import RequestRecord
from gateway.transport.trace_context import client_trace

TRACEPARENT = re.compile("00-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})")
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Traced:
    """Spans of a real provider, kept in memory."""

    def __init__(self, sampler: Sampler) -> None:
        self.kept = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(processor := SimpleSpanProcessor(self.kept))
        self.spans = Spans(self.provider, processor, "test")

    def request(self, sampled: str | None = None, **known: Any) -> RequestRecord:
        """One that has begun and ended; `sampled`: the flags of its client's span, of which there is one."""
        headers = {} if sampled is None else {b"traceparent": f"00-{TRACE}-{PARENT}-{sampled}".encode()}
        record = RequestRecord("r", "POST", "/v1/chat/completions", route="chat", trace=client_trace(headers))
        self.spans.began(record)
        record.stages.took("route", record.started)
        record.stages.sending()
        for name, value in known.items():
            setattr(record, name, value)
        facts = FactsMaker().facts(record, record.started + 1)
        assert facts is not None
        self.spans.ended(record, facts, record.started + 1)
        return record


def parts(record: RequestRecord) -> tuple[str, str, int]:
    """Trace, span and flags, as the engine is told them."""
    match = TRACEPARENT.fullmatch(record.trace.headers["traceparent"])
    assert match is not None
    assert record.trace.trace_id == match["trace"]
    return match["trace"], match["span"], int(match["flags"], 16)


def flags_of_the_sdk(traced: Traced) -> int:
    """What the SDK itself gives a span without a parent."""
    return int(traced.provider.get_tracer("test").start_span("its own").get_span_context().trace_flags)


def test_what_is_not_sampled_has_no_span_and_ids_of_its_own() -> None:
    traced = Traced(ParentBased(ALWAYS_OFF))
    found = [parts(record) for record in (traced.request(), traced.request())]
    assert len({trace for trace, _, _ in found}) == len({span for _, span, _ in found}) == 2
    assert {flags for _, _, flags in found} == {flags_of_the_sdk(traced)}
    assert traced.request().trace.span is None
    assert traced.kept.get_finished_spans() == ()


def test_what_is_sampled_is_written_under_the_ids_that_the_engine_is_told() -> None:
    traced = Traced(ParentBased(ALWAYS_ON))
    records = [traced.request(), traced.request()]
    spans = [span for span in traced.kept.get_finished_spans() if span.parent is None]
    told = [parts(record)[:2] for record in records]
    assert [(f"{s.context.trace_id:032x}", f"{s.context.span_id:016x}") for s in spans] == told
    assert len({trace for trace, _ in told}) == 2
    assert {parts(record)[2] for record in records} == {flags_of_the_sdk(traced)}


def test_a_share_is_sampled_by_the_very_ids_that_are_told() -> None:
    traced = Traced(ParentBased(TraceIdRatioBased(0.5)))
    records = [traced.request() for _ in range(64)]
    found = [parts(record) for record in records]
    half = 1 << 63
    assert {trace for trace, _, flags in found if flags & 1} == {
        trace for trace, _, _ in found if int(trace, 16) % (1 << 64) < half
    }
    assert len({span.context.trace_id for span in traced.kept.get_finished_spans()}) == sum(
        flags & 1 for _, _, flags in found
    )
    assert 0 < sum(flags & 1 for _, _, flags in found) < 64


@pytest.mark.parametrize(("flags", "kept"), [("01", True), ("00", False)])
def test_a_clients_trace_goes_on_and_says_whether_it_is_sampled(flags: str, kept: bool) -> None:
    traced = Traced(ParentBased(TraceIdRatioBased(0.0 if kept else 1.0)))
    record = traced.request(flags)
    trace, span, own = parts(record)
    assert (trace, own & 1) == (TRACE, int(kept))
    assert span != PARENT
    assert (record.trace.span is not None) is kept
    written = [each.parent.span_id for each in traced.kept.get_finished_spans() if each.parent is not None]
    assert (int(PARENT, 16) in written) is kept


def encoded(spans: Sequence[ReadableSpan]) -> list[object]:
    """As a collector gets them, but for ids that are new each time and whose order says nothing."""
    (resource,) = encode_spans(spans).resource_spans
    found = []
    for span in resource.scope_spans[0].spans:
        span.span_id = b""
        if span.kind != span.SPAN_KIND_SERVER:
            span.parent_span_id = b""
        found.append(span)
    return [resource.resource, resource.scope_spans[0].scope, *sorted(found, key=lambda span: span.name)]


def test_spans_are_those_that_a_tracer_of_the_sdk_would_make() -> None:
    traced = Traced(ParentBased(ALWAYS_ON))
    record = traced.request("01", outcome="failed", error="engine_failure", status=500)
    ours = traced.kept.get_finished_spans()
    assert [span.name for span in ours] == ["route", "engine", "chat"]
    assert {span.parent.span_id for span in ours[:2]} == {ours[2].context.span_id}
    traced.kept.clear()

    started = int(record.arrival * 1e9)
    tracer, theirs = traced.provider.get_tracer("test"), _client(record)
    whole = tracer.start_span("chat", theirs, SpanKind.SERVER, start_time=started)
    whole.set_attributes(dict(ours[2].attributes))
    whole.set_status(Status(StatusCode.ERROR))
    below = set_span_in_context(whole)
    for each in ours[:2]:
        tracer.start_span(each.name, below, start_time=each.start_time).end(each.end_time)
    whole.end(ours[2].end_time)
    assert abs(ours[2].start_time - started) < 1000
    ours[2]._start_time = started  # a float's last digits
    assert encoded(ours) == encoded(traced.kept.get_finished_spans())
    assert ours[2].attributes["error.type"] == "engine_failure"


def _client(record: RequestRecord) -> Context:
    client = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    assert record.trace.trace_id == TRACE
    return TraceContextTextMapPropagator().extract(client)


def test_attributes_are_as_many_and_as_long_as_the_environment_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "4")
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "3")
    traced = Traced(ParentBased(ALWAYS_ON))
    traced.request()
    (whole,) = [span for span in traced.kept.get_finished_spans() if span.parent is None]
    assert len(whole.attributes) == 4
    assert all(len(value) <= 3 for value in whole.attributes.values() if isinstance(value, str))
    assert whole.dropped_attributes > 0
