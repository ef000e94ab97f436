"""One server span a request, and one below it for each stage, all written when the request has ended.

Until then there is no span: whether it is sampled and under which ids is all that has to be known before.
"""

from collections.abc import Mapping
from typing import NamedTuple, cast

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    get_current_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.telemetry.facts import RequestFacts
from gateway.telemetry.labels import OTHER
from gateway.telemetry.otel.attributes import Value, of_span
from gateway.transport.record import RequestRecord
from gateway.transport.trace_context import TraceContext

_W3C = TraceContextTextMapPropagator()
_NOBODY = Context()  # not the one of whoever runs here
_RANDOM = 0x02  # a flag of W3C Trace Context, Level 2
_IDS = RandomIdGenerator()
# Older SDKs know no such flag, and set none.
_KNOWN_RANDOM = _RANDOM if getattr(_IDS, "is_trace_id_random", lambda: False)() else 0
_WELL, _ILL = Status(StatusCode.UNSET), Status(StatusCode.ERROR)


class _Begun(NamedTuple):
    """A request's span, which is sampled."""

    context: SpanContext
    parent: SpanContext | None  # the client's
    attributes: Mapping[str, Value]  # that the sampler wants it to have


class Spans:
    """Says what engines' spans begin below, and writes ours. Called on the event loop.

    Sampler and resource are the provider's; `processor` gets the spans, and is the provider's as well.
    """

    def __init__(self, provider: TracerProvider, processor: SpanProcessor, scope: str) -> None:
        self._sampler = provider.sampler
        self._resource = provider.resource
        self._processor = processor
        self._scope = InstrumentationScope(scope)
        self._limits = SpanLimits()

    def began(self, record: RequestRecord) -> None:
        """Find the server's span a place below the client's, and let the engine's begin below ours."""
        parent, below, flags = None, _NOBODY, _KNOWN_RANDOM
        if record.trace.headers:
            below = _W3C.extract(dict(record.trace.headers), _NOBODY)
            found = get_current_span(below).get_span_context()
            if found.is_valid:
                parent, flags = found, flags & found.trace_flags
        trace_id = _IDS.generate_trace_id() if parent is None else parent.trace_id
        sampled = self._sampler.should_sample(below, trace_id, str(record.route), SpanKind.SERVER)
        span_id = _IDS.generate_span_id()
        if sampled.decision is not Decision.RECORD_AND_SAMPLE:
            record.trace = _carried(trace_id, span_id, flags, sampled.trace_state)
            return
        flags |= TraceFlags.SAMPLED
        context = SpanContext(trace_id, span_id, False, TraceFlags(flags), sampled.trace_state)
        begun = _Begun(context, parent, cast(Mapping[str, Value], sampled.attributes))
        record.trace = _carried(trace_id, span_id, flags, sampled.trace_state, begun)

    def ended(self, record: RequestRecord, facts: RequestFacts, at: float) -> None:
        """Write the stages down, and the whole request."""
        begun = cast(_Begun | None, record.trace.span)
        if begun is None:
            return
        ours, parent, wanted = begun
        for stage in record.stages.all(at):
            context = SpanContext(
                ours.trace_id, _IDS.generate_span_id(), False, ours.trace_flags, ours.trace_state
            )
            self._write(
                ReadableSpan(
                    stage.name,
                    context,
                    ours,
                    self._resource,
                    start_time=_nanoseconds(record, stage.start),
                    end_time=_nanoseconds(record, stage.end),
                    instrumentation_scope=self._scope,
                )
            )
        labels = facts.labels
        self._write(
            ReadableSpan(
                labels.operation if labels.model == OTHER else f"{labels.operation} {labels.model}",
                ours,
                parent,
                self._resource,
                self._bounded({**wanted, **of_span(record, facts)}),
                kind=SpanKind.SERVER,
                status=_ILL if labels.outcome in ("failed", "aborted") else _WELL,
                start_time=_nanoseconds(record, record.started),
                end_time=_nanoseconds(record, at),
                instrumentation_scope=self._scope,
            )
        )

    def _bounded(self, attributes: Mapping[str, Value]) -> BoundedAttributes:
        """As many and as long as `OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT` and its kin allow."""
        most, longest = self._limits.max_span_attributes, self._limits.max_span_attribute_length
        return BoundedAttributes(most, attributes, max_value_len=longest)

    def _write(self, span: ReadableSpan) -> None:
        self._processor.on_end(span)


def _carried(
    trace_id: int, span_id: int, flags: int, state: TraceState | None, span: _Begun | None = None
) -> TraceContext:
    """What the engine's span begins below. No `span`: it is not sampled."""
    written = f"{trace_id:032x}"
    carrier = {"traceparent": f"00-{written}-{span_id:016x}-{flags:02x}"}
    if state:
        carrier["tracestate"] = state.to_header()
    return TraceContext(written, carrier, span)


def _nanoseconds(record: RequestRecord, at: float) -> int:
    """Since the epoch, of a time on the monotonic clock."""
    return int((record.arrival + at - record.started) * 1e9)
