"""Everything that watches requests, as the app sees it."""

import time
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
from gateway.telemetry.canon_metrics import CanonMetrics
from gateway.telemetry.facts import FactsMaker, RequestFacts, RequestLabels
from gateway.telemetry.limits_metrics import LimitsMetrics
from gateway.telemetry.otel.opening import open_tracing
from gateway.telemetry.otel.options import OtelOptions
from gateway.telemetry.request_metrics import RequestMetrics
from gateway.telemetry.routing_metrics import RoutingMetrics
from gateway.telemetry.scrape import Scrape
from gateway.telemetry.tally import Tally
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
        self._tally = Tally()
        registry.register(RequestMetrics(self._tally))
        self._canon = CanonMetrics(registry)
        self._routing = RoutingMetrics(registry)
        self.tracing = open_tracing(otel, self._tally)
        self._limits = LimitsMetrics(registry, limits or Limits())
        self._scrape = Scrape(registry, served, admission, ledger, siblings, self._limits.families, config)
        self.tracing.observe(self._scrape.own)

    def ended(self, records: Sequence[RequestRecord]) -> None:
        """Take requests that have ended, on the event loop."""
        alike: dict[RequestLabels, list[RequestFacts]] = {}
        for record in records:
            now = time.perf_counter() if record.ended is None else record.ended
            facts = self._facts.facts(record, now)
            if facts is None:
                continue
            alike.setdefault(facts.labels, []).append(facts)
            if record.canon is not None:
                self._canon.ended(record.canon)
            self._routing.ended(record)
            self._limits.ended(record)
            self.tracing.ended(record, facts, now)
        self._tally.add(alike)
        self._canon.settle()
        self._routing.settle()
        self.tracing.settle(alike)

    async def scrape(self, request: Request) -> Response:
        """GET /metrics."""
        return await self._scrape.answer(request.headers.get("accept", ""))
