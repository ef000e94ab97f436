"""One server span a request, and one below it for each stage, written when the request has ended."""

from typing import cast

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.telemetry.facts import RequestFacts
from gateway.telemetry.labels import OTHER
from gateway.telemetry.otel.attributes import of_span
from gateway.transport.record import RequestRecord
from gateway.transport.trace_context import TraceContext

_W3C = TraceContextTextMapPropagator()
_NOBODY = Context()  # not the one of whoever runs here


class Spans:
    """Begins and ends them. Called on the event loop; what is not sampled costs a few microseconds."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def began(self, record: RequestRecord) -> None:
        """Begin the server's span below the client's, and let the engine's begin below ours."""
        span = self._tracer.start_span(
            str(record.route),
            context=_W3C.extract(dict(given)) if (given := record.trace.headers) else _NOBODY,
            kind=SpanKind.SERVER,
            start_time=_nanoseconds(record, record.started),
        )
        ours = span.get_span_context()
        trace_id = format(ours.trace_id, "032x")
        carrier = {"traceparent": f"00-{trace_id}-{ours.span_id:016x}-{ours.trace_flags:02x}"}
        if ours.trace_state:
            carrier["tracestate"] = ours.trace_state.to_header()
        record.trace = TraceContext(trace_id, carrier, span)

    def ended(self, record: RequestRecord, facts: RequestFacts, at: float) -> None:
        """Write the stages down and end the span."""
        span = cast(Span | None, record.trace.span)
        if span is None:
            return
        if span.is_recording():
            span.update_name(facts.operation if facts.model == OTHER else f"{facts.operation} {facts.model}")
            span.set_attributes(of_span(record, facts))
            if facts.outcome in ("failed", "aborted"):
                span.set_status(Status(StatusCode.ERROR))
            self._write_stages(span, record, at)
        span.end(_nanoseconds(record, at))

    def _write_stages(self, span: Span, record: RequestRecord, at: float) -> None:
        below = set_span_in_context(span)
        for stage in record.stages.all(at):
            child = self._tracer.start_span(
                stage.name, context=below, start_time=_nanoseconds(record, stage.start)
            )
            child.end(_nanoseconds(record, stage.end))


def _nanoseconds(record: RequestRecord, at: float) -> int:
    """Since the epoch, of a time on the monotonic clock."""
    return int((record.arrival + at - record.started) * 1e9)
