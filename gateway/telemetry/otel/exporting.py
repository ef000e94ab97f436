"""OpenTelemetry's SDK set up for one gateway, with no global state: two gateways in one process are two of them."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Thread

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from prometheus_client.core import Metric

from gateway.telemetry.facts import RequestFacts
from gateway.telemetry.otel.meters import Meters, QueueWaits, Recorded
from gateway.telemetry.otel.metric_exporter import MetricExporter
from gateway.telemetry.otel.observed import observe
from gateway.telemetry.otel.options import OtelOptions
from gateway.telemetry.otel.spans import Spans
from gateway.telemetry.tally import Alike, Tally
from gateway.telemetry.tracing import Tracing
from gateway.transport.record import RequestRecord

SCOPE = "kvgate"
_CLOSE_S = 3.0  # for what was not sent yet


class OtelTracing(Tracing):
    """Sends spans and metrics from threads of their own; a collector that is away loses them, and holds up nothing."""

    def __init__(self, options: OtelOptions, tally: Tally) -> None:
        resource = resource_of(options)
        self._tracers: TracerProvider | None = None
        self._meter_provider: MeterProvider | None = None
        self._spans: Spans | None = None
        self._waits: QueueWaits | None = None
        self._meters: list[Meters | Recorded] = []
        if options.traces:
            processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=_endpoint(options, "traces")))
            self._tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._tracers.add_span_processor(processor)
            self._spans = Spans(self._tracers, processor, SCOPE)
        if options.metrics:
            ours = Meters(tally, delta=options.delta, histograms=not options.exponential)
            exporter = MetricExporter(_endpoint(options, "metrics"), SCOPE, ours.metrics)
            reader = PeriodicExportingMetricReader(exporter)
            self._meter_provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
            meter = self._meter_provider.get_meter(SCOPE)
            self._waits = QueueWaits(meter)
            self._meters = [ours, Recorded(meter)] if options.exponential else [ours]

    def began(self, record: RequestRecord, headers: Mapping[bytes, bytes]) -> None:
        super().began(record, headers)
        if self._spans is not None:
            self._spans.began(record)

    def ended(self, record: RequestRecord, facts: RequestFacts, at: float) -> None:
        if self._spans is not None:
            self._spans.ended(record, facts, at)
        if self._waits is not None:
            self._waits.ended(facts, record)

    def settle(self, alike: Alike) -> None:
        for meters in self._meters:
            meters.settle(alike)

    def observe(self, families: Callable[[], Iterable[Metric]]) -> None:
        if self._meter_provider is not None:
            observe(self._meter_provider.get_meter(SCOPE), families)

    async def aclose(self) -> None:
        # A collector that does not answer is tried again for longer than anybody wants to wait for the end.
        closing = [Thread(target=close, name="kvgate-otel-close", daemon=True) for close in self._closes()]
        for thread in closing:
            thread.start()
        for thread in closing:
            await asyncio.to_thread(thread.join, _CLOSE_S)

    def _closes(self) -> Iterator[Callable[[], object]]:
        """What sends the rest; both at a time."""
        if self._tracers is not None:
            yield self._tracers.shutdown
        if self._meter_provider is not None:
            yield self._meter_provider.shutdown


def _endpoint(options: OtelOptions, signal: str) -> str | None:
    return None if options.endpoint is None else f"{options.endpoint.rstrip('/')}/v1/{signal}"


def resource_of(options: OtelOptions) -> Resource:
    """As the environment describes this process; its service is `kvgate` where nothing else is said.

    Processes that the environment describes alike are still told apart: sums over them would else be one's alone.
    """
    resource = Resource.create()
    own: dict[str, str] = {}
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        own[SERVICE_NAME] = "kvgate"
    if options.instance is not None:
        said = [resource.attributes.get(SERVICE_INSTANCE_ID), options.instance]
        own[SERVICE_INSTANCE_ID] = "/".join(str(each) for each in said if each)
    return _HashedOnce(resource.merge(Resource(own)))


class _HashedOnce(Resource):
    """Exporters look every span up by its resource, and the SDK writes it as JSON for each hash of it."""

    def __init__(self, same: Resource) -> None:
        super().__init__(same.attributes, same.schema_url)
        self._hashed = super().__hash__()

    def __hash__(self) -> int:
        return self._hashed
