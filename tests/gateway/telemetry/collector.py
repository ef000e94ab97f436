"""An OTLP receiver on a loopback port: what a gateway sends, decoded."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SERVER = 2  # SPAN_KIND_SERVER
ERROR = 2  # STATUS_CODE_ERROR


@dataclass(frozen=True, slots=True)
class Sent:
    """One span."""

    name: str
    trace_id: str
    id: str
    parent: str  # empty: none
    start: int  # nanoseconds
    end: int
    kind: int
    status: int
    attributes: Mapping[str, Any]


@dataclass(slots=True)
class Collector:
    url: str = ""
    raw: list[bytes] = field(default_factory=list)
    spans: list[Sent] = field(default_factory=list)
    resources: list[Mapping[str, Any]] = field(default_factory=list)
    points: dict[str, list[Any]] = field(default_factory=dict)  # of the newest export, by metric

    def take(self, path: str, body: bytes) -> None:
        self.raw.append(body)
        if path == "/v1/traces":
            self._take_spans(ExportTraceServiceRequest.FromString(body))
        elif path == "/v1/metrics":
            self._take_metrics(ExportMetricsServiceRequest.FromString(body))

    def servers(self) -> list[Sent]:
        """Spans of whole requests."""
        return [span for span in self.spans if span.kind == SERVER]

    def below(self, span: Sent) -> list[Sent]:
        return [each for each in self.spans if each.parent == span.id]

    def total(self, name: str, **labels: str) -> float:
        """Of a counter, or of a histogram's values; 0 where nothing was sent."""
        found = [point for point in self.points.get(name, []) if _has(point, labels)]
        return sum(
            point.sum if hasattr(point, "bucket_counts") else point.as_double or point.as_int
            for point in found
        )

    def _take_spans(self, request: Any) -> None:
        for resource in request.resource_spans:
            self.resources.append(_attributes(resource.resource.attributes))
            for scope in resource.scope_spans:
                self.spans += [_span(span) for span in scope.spans]

    def _take_metrics(self, request: Any) -> None:
        for resource in request.resource_metrics:
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                self.points[metric.name] = list(getattr(metric, metric.WhichOneof("data")).data_points)


def _span(span: Any) -> Sent:
    return Sent(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.kind,
        span.status.code,
        _attributes(span.attributes),
    )


def _has(point: Any, labels: Mapping[str, str]) -> bool:
    wanted = {name.replace("__", "."): value for name, value in labels.items()}
    return wanted.items() <= _attributes(point.attributes).items()


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    if value.HasField("array_value"):
        return [_value(each) for each in value.array_value.values]
    return getattr(value, value.WhichOneof("value"))


@contextmanager
def collector() -> Iterator[Collector]:
    kept = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            kept.take(self.path, self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
