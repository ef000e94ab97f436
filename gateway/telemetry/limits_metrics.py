"""What limits and queues did, as metrics."""

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gateway.limits.limits import Limits
from gateway.telemetry.buckets import QUEUE
from gateway.telemetry.labels import Bounded, Series
from gateway.transport.record import RequestRecord


class LimitsMetrics:
    """Counts requests that were refused, or had to wait. Called from one thread; read from any."""

    def __init__(self, registry: CollectorRegistry, limits: Limits) -> None:
        self._limits = limits
        self._limited = Series(
            Counter(
                "kvgate_limited_requests",
                "Requests refused at a limit of their tenant: requests, tokens, concurrency, body or queue.",
                ("tenant", "kind"),
                registry=registry,
            )
        )
        self._waits = Series(
            Histogram(
                "kvgate_queue_wait_seconds",
                "Waiting for a full engine, of those that had to.",
                ("tenant", "kvgate_engine"),
                buckets=QUEUE,
                registry=registry,
            )
        )
        self._tenants = Bounded()

    def ended(self, record: RequestRecord) -> None:
        """Count one request."""
        if record.limited is not None:
            self._limited(self._tenants(record.tenant.name), record.limited).inc()
        for stage in record.stages.timed:
            if stage.name == "queue":
                who = (self._tenants(record.tenant.name), record.engine or "none")
                self._waits(*who).observe(stage.end - stage.start)

    def families(self) -> list[Metric]:
        """What is there now."""
        waiting = GaugeMetricFamily(
            "kvgate_queue_waiting", "Requests that wait for a full engine.", labels=("kvgate_engine",)
        )
        running = GaugeMetricFamily(
            "kvgate_queue_running", "Requests at an engine with max_running.", labels=("kvgate_engine",)
        )
        for engine, queue in list(self._limits.queues.items()):  # another thread may add one
            waiting.add_metric([engine], queue.waiting)
            running.add_metric([engine], queue.running)
        return [waiting, running, *self._shared()]

    def _shared(self) -> list[Metric]:
        state = self._limits.state
        if state is None:
            return []
        counts = state.circuit.counts()
        return [
            GaugeMetricFamily(
                "kvgate_shared_state_away",
                "1: Redis is away, this gateway goes on alone.",
                float(counts.away),
            ),
            CounterMetricFamily("kvgate_shared_state_outages", "Times that it went away.", counts.outages),
            CounterMetricFamily(
                "kvgate_shared_state_failed_calls", "Calls without an answer.", counts.failed_calls
            ),
            CounterMetricFamily("kvgate_shared_state_away_seconds", "In all.", counts.away_s),
            GaugeMetricFamily(
                "kvgate_gateways", "That share it, as last seen, this one among them.", self._limits.gateways
            ),
        ]
