"""What sends metrics: those of the SDK's instruments, and beside them ours that no instrument made."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    Metric,
    MetricExportResult,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope


class MetricExporter(OTLPMetricExporter):
    """Sends `ours()` under `scope` with whatever the SDK has.

    The SDK sends nothing where no instrument has a number: one must always have, as a gauge does.
    """

    def __init__(self, endpoint: str | None, scope: str, ours: Callable[[], Sequence[Metric]]) -> None:
        super().__init__(endpoint=endpoint)
        self._scope = scope
        self._ours = ours

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        """Send both. Called on the reader's thread, or the one that closes it."""
        first, *others = metrics_data.resource_metrics
        both = replace(metrics_data, resource_metrics=[self._with_ours(first), *others])
        return super().export(both, timeout_millis, **kwargs)

    def _with_ours(self, resource: ResourceMetrics) -> ResourceMetrics:
        found = next((each for each in resource.scope_metrics if each.scope.name == self._scope), None)
        if found is None:
            found = ScopeMetrics(InstrumentationScope(self._scope), [], "")
        others = [each for each in resource.scope_metrics if each is not found]
        ours = replace(found, metrics=[*found.metrics, *self._ours()])
        return replace(resource, scope_metrics=[ours, *others])
