"""What is sampled is written down as the SDK would; what is not still has ids that the engine's spans go below."""

import re

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan

from gateway.telemetry.facts import FactsMaker
from gateway.telemetry.otel.spans import Spans
from gateway.telemetry.otel.trace_ids import TraceIds
from gateway.transport.record import RequestRecord
from gateway.transport.trace_context import client_trace

TRACEPARENT = re.compile("00-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})")
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Traced:
    """Spans of a real provider, kept in memory."""

    def __init__(self, sampler: Sampler) -> None:
        self.kept, ids = InMemorySpanExporter(), TraceIds()
        self.provider = TracerProvider(sampler=sampler, id_generator=ids, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.kept))
        self.spans = Spans(self.provider, ids, "test")

    def request(self, sampled: str | None = None) -> RequestRecord:
        """One that has begun and ended; `sampled`: the flags of its client's span, of which there is one."""
        headers = {} if sampled is None else {b"traceparent": f"00-{TRACE}-{PARENT}-{sampled}".encode()}
        record = RequestRecord("r", "POST", "/v1/chat/completions", route="chat", trace=client_trace(headers))
        self.spans.began(record)
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
    assert not any(isinstance(record.trace.span, NonRecordingSpan) for record in records)  # asked only once


@pytest.mark.parametrize(("flags", "kept"), [("01", True), ("00", False)])
def test_a_clients_trace_goes_on_and_says_whether_it_is_sampled(flags: str, kept: bool) -> None:
    traced = Traced(ParentBased(TraceIdRatioBased(0.0 if kept else 1.0)))
    record = traced.request(flags)
    trace, span, own = parts(record)
    assert (trace, own & 1) == (TRACE, int(kept))
    assert span != PARENT
    assert isinstance(record.trace.span, NonRecordingSpan) is not kept
    written = [each.parent.span_id for each in traced.kept.get_finished_spans() if each.parent is not None]
    assert (int(PARENT, 16) in written) is kept
