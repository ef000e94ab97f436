"""Everything that watches requests, as the app sees it."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response

from gateway.ledger.sink import LedgerSink
from gateway.limits.limits import Limits
from gateway.process.front import ALONE, Siblings
from gateway.reload.state import ConfigState
from gateway.served import Served
from gateway.surface.admission import Admission
from gateway.telemetry.facts import FactsMaker
from gateway.telemetry.limits_metrics import LimitsMetrics
from gateway.telemetry.otel.opening import open_tracing
from gateway.telemetry.otel.options import OtelOptions
from gateway.telemetry.request_metrics import RequestMetrics
from gateway.telemetry.routing_metrics import RoutingMetrics
from gateway.telemetry.scrape import Scrape
from gateway.transport.record import RequestRecord


class Telemetry:
    """One app's; two apps in one process do not share any counter."""

    def __init__(
        self,
        served: Served,
        admission: Admission,
        ledger: LedgerSink,
        otel: OtelOptions | None = None,
        siblings: Siblings = ALONE,
        limits: Limits | None = None,
        config: ConfigState | None = None,
    ) -> None:
        registry = CollectorRegistry()
        self._facts = FactsMaker()
        self._requests = RequestMetrics(registry)
        self._routing = RoutingMetrics(registry)
        self.tracing = open_tracing(otel)
        self._limits = LimitsMetrics(registry, limits or Limits())
        self._scrape = Scrape(registry, served, admission, ledger, siblings, self._limits.families, config)
        self.tracing.observe(self._scrape.own)

    def ended(self, records: Sequence[RequestRecord]) -> None:
        """Take requests that have ended, on the event loop."""
        for record in records:
            self._ended(record)
        self._requests.settle()
        self._routing.settle()
        self.tracing.settle()

    def _ended(self, record: RequestRecord) -> None:
        now = record.started + record.seconds
        facts = self._facts.facts(record, now)
        if facts is not None:
            self._requests.ended(facts)
            self._routing.ended(record)
            self._limits.ended(record)
            self.tracing.ended(record, facts, now)

    async def scrape(self, request: Request) -> Response:
        """GET /metrics."""
        return await self._scrape.answer(request.headers.get("accept", ""))
