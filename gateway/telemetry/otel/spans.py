"""One server span a request, and one below it for each stage, written when the request has ended."""

from typing import cast

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TraceState, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.telemetry.facts import RequestFacts
from gateway.telemetry.labels import OTHER
from gateway.telemetry.otel.attributes import of_span
from gateway.telemetry.otel.trace_ids import TraceIds
from gateway.transport.record import RequestRecord
from gateway.transport.trace_context import TraceContext

_W3C = TraceContextTextMapPropagator()
_NOBODY = Context()  # not the one of whoever runs here


class Spans:
    """Begins and ends them. Called on the event loop; what is not sampled costs a few microseconds.

    `ids` are the provider's own.
    """

    def __init__(self, provider: TracerProvider, ids: TraceIds, scope: str) -> None:
        self._tracer = provider.get_tracer(scope)
        self._sampler = provider.sampler
        self._ids = ids

    def began(self, record: RequestRecord) -> None:
        """Begin the server's span below the client's, and let the engine's begin below ours."""
        name, given = str(record.route), record.trace.headers
        if given:
            record.trace = self._span(record, name, _W3C.extract(dict(given)))
            return
        trace_id = self._ids.generate_trace_id()
        sampled = self._sampler.should_sample(_NOBODY, trace_id, name, SpanKind.SERVER)
        if sampled.decision is not Decision.DROP:
            with self._ids.given(trace_id):  # of which the sampler says the same once more
                record.trace = self._span(record, name, _NOBODY)
        else:
            record.trace = _carried(
                trace_id, self._ids.generate_span_id(), self._ids.flags, sampled.trace_state
            )

    def _span(self, record: RequestRecord, name: str, below: Context) -> TraceContext:
        started = _nanoseconds(record, record.started)
        span = self._tracer.start_span(name, below, SpanKind.SERVER, start_time=started)
        ours = span.get_span_context()
        return _carried(ours.trace_id, ours.span_id, ours.trace_flags, ours.trace_state, span)

    def ended(self, record: RequestRecord, facts: RequestFacts, at: float) -> None:
        """Write the stages down and end the span."""
        span = cast(Span | None, record.trace.span)
        if span is None:
            return
        if span.is_recording():
            labels = facts.labels
            span.update_name(
                labels.operation if labels.model == OTHER else f"{labels.operation} {labels.model}"
            )
            span.set_attributes(of_span(record, facts))
            if labels.outcome in ("failed", "aborted"):
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


def _carried(
    trace_id: int, span_id: int, flags: int, state: TraceState | None, span: Span | None = None
) -> TraceContext:
    """What the engine's span begins below. No `span`: it is not recorded."""
    written = f"{trace_id:032x}"
    carrier = {"traceparent": f"00-{written}-{span_id:016x}-{flags:02x}"}
    if state:
        carrier["tracestate"] = state.to_header()
    return TraceContext(written, carrier, span)


def _nanoseconds(record: RequestRecord, at: float) -> int:
    """Since the epoch, of a time on the monotonic clock."""
    return int((record.arrival + at - record.started) * 1e9)
