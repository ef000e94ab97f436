"""GET /metrics: what was counted, and what the engines say at this moment."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.responses import Response

from engine_adapters.base import Health
from engine_adapters.errors import EngineError
from gateway.ledger.sink import LedgerSink
from gateway.process.front import ALONE, Figures, Siblings, SiblingsAwayError
from gateway.reload.state import ConfigState
from gateway.served import Backend, Served
from gateway.surface.admission import Admission
from gateway.telemetry.directory_metrics import directory_families
from gateway.telemetry.engine_metrics import ENGINE, families
from gateway.telemetry.figures import families_sent, merged
from gateway.telemetry.kv_event_metrics import kv_event_families
from gateway.telemetry.ledger_metrics import ledger_families
from gateway.telemetry.operation_metrics import operation_families, reload_counts
from gateway.telemetry.replica_metrics import REPLICA, label_of, replica_families
from gateway.telemetry.routing_metrics import routing_families

log = logging.getLogger("kvgate.gateway")

_ENGINE_S = 2.0  # how long engines may take to answer; whoever scrapes gives up after 10 by default


class Scrape:
    """Renders one scrape at a time, off the event loop: text of thousands of series takes milliseconds."""

    def __init__(
        self,
        registry: CollectorRegistry,
        served: Served,
        admission: Admission,
        ledger: LedgerSink,
        siblings: Siblings = ALONE,
        limits: Callable[[], list[Metric]] = list,
        config: ConfigState | None = None,
    ) -> None:
        self._registry = registry
        self._served = served
        self._admission = admission
        self._ledger = ledger
        self._config = config
        self._siblings = siblings
        self._limits = limits
        siblings.count(lambda: families_sent(self.own()))
        self._turn = asyncio.Lock()

    async def answer(self, accept: str) -> Response:
        """The answer in the form that `accept` asks for: of all processes of this server."""
        encode, content_type = choose_encoder(accept)
        async with self._turn:
            try:
                figures = await self._siblings.figures()
            except SiblingsAwayError as error:
                # Those of one process alone would look as if the others' had been taken back.
                return Response(f"the server's figures cannot be told now: {error}\n", 503)
            asked = [await self._up(), *await self._counters(), *self._operation()]
            text = await asyncio.to_thread(lambda: encode(_Collected(self._counted(figures), asked)))
        return Response(text, headers={"content-type": content_type})

    def _counted(self, figures: Sequence[Figures]) -> Iterable[Metric]:
        return merged(figures) if figures else self.own()

    def own(self) -> Iterator[Metric]:
        """What this process has counted, and what it holds. Called on any thread."""
        for metric in self._registry.collect():
            # When a series began is a third of all lines, and nobody asks for it.
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
        yield from self._in_flight()
        yield from ledger_families(self._ledger)
        yield from self._limits()
        yield from replica_families(self._served.pools)
        yield from routing_families(self._served.pools)
        yield from kv_event_families(self._served.pools)
        yield from directory_families(self._served.pools)
        yield from reload_counts(self._config)

    def _operation(self) -> list[Metric]:
        return operation_families(self._config, draining=self._served.draining)

    def _in_flight(self) -> list[Metric]:
        return [
            GaugeMetricFamily(
                "kvgate_requests_in_flight",
                "Requests being read, waiting or generating.",
                value=self._admission.requests,
            ),
            GaugeMetricFamily(
                "kvgate_body_bytes_in_flight",
                "Bytes of their bodies.",
                value=self._admission.body_bytes,
            ),
        ]

    async def _up(self) -> Metric:
        asked = {
            (remote.name, label_of(remote.name, remote.replica)): remote.health()
            for remote in self._served.remotes
        }
        backend = self._backend()
        if backend is not None:
            asked[backend.name, ""] = backend.engine.health()
        up = GaugeMetricFamily(
            "kvgate_engine_up", "1: the engine takes requests now.", labels=(ENGINE, REPLICA)
        )
        for who, ready in zip(asked, await asyncio.gather(*map(_ready, asked.values())), strict=True):
            if ready is not None:
                up.add_metric(list(who), float(ready))
        return up

    async def _counters(self) -> list[Metric]:
        """Of the engine in this process; others are scraped where they are."""
        backend = self._backend()
        if backend is None:
            return []
        try:
            async with asyncio.timeout(_ENGINE_S):
                return families(backend.name, await backend.engine.counters())
        except (EngineError, TimeoutError) as error:
            fields = {"engine": backend.name, "error": str(error) or type(error).__name__}
            log.warning("an engine's counters are missing from a scrape", extra={"fields": fields})
            return []

    def _backend(self) -> Backend | None:
        try:
            return self._served.current()
        except EngineError:
            return None


async def _ready(asked: Awaitable[Health]) -> bool | None:
    """None: it is not known, since asking costs money."""
    try:
        async with asyncio.timeout(_ENGINE_S):
            health = await asked
    except (EngineError, TimeoutError):
        return False
    return health.ready if health.known else None


class _Collected(Collector):
    """Families from several places."""

    def __init__(self, *parts: Iterable[Metric]) -> None:
        self._parts = parts

    def collect(self) -> Iterable[Metric]:
        for part in self._parts:
            yield from part
