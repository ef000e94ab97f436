"""How requests were routed, whether what was expected came true, and what each replica has to do."""

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric

from gateway.directory.directed_router import DirectedRouter
from gateway.replicas.pool import EnginePool
from gateway.routing.prefix_router import PrefixRouter
from gateway.telemetry.engine_metrics import ENGINE
from gateway.telemetry.labels import Bounded, Totals
from gateway.telemetry.replica_metrics import REPLICA, label_of
from gateway.transport.record import RequestRecord


class RoutingMetrics:
    """Counts requests that have ended. Called from one thread; read from any."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._totals: list[Totals] = []

        def counter(name: str, text: str, *labels: str) -> Totals:
            self._totals.append(totals := Totals(Counter(name, text, (ENGINE, *labels), registry=registry)))
            return totals

        self._decisions = counter(
            "kvgate_routed_requests", "Requests by why their replica got them.", "reason"
        )
        self._prompts = counter(
            "kvgate_routed_prompts", "Requests by what their prefix was known by: tokens, or text.", "form"
        )
        self._predicted = counter(
            "kvgate_routed_predicted_tokens", "Tokens expected to be reused, of requests that reported."
        )
        self._reused = counter(
            "kvgate_routed_reused_tokens", "Tokens that were reused, of the same requests."
        )
        self._engines = Bounded()

    def ended(self, record: RequestRecord) -> None:
        """Count one request, once it is settled."""
        routed, reuse = record.routed, record.reuse
        if routed is None or record.engine is None:
            return
        engine = self._engines(record.engine)
        self._decisions.add(1, engine, routed.reason)
        predicted = routed.predicted
        if predicted is None:
            return
        self._prompts.add(1, engine, "tokens" if routed.counted else "text")
        if reuse is not None and reuse.status == "reported" and reuse.reused is not None:
            # Both or none: their ratio is of the same requests.
            self._predicted.add(predicted, engine)
            self._reused.add(reuse.reused, engine)

    def settle(self) -> None:
        """Behind the last one of a batch."""
        for each in self._totals:
            each.settle()


def routing_families(pools: Sequence[EnginePool]) -> Iterator[Metric]:
    """What the routers hold and think now, of engines that are routed by prefixes."""
    queued = GaugeMetricFamily(
        "kvgate_replica_queued_tokens",
        "Prompt tokens that are expected to be prefilled there before a new request.",
        labels=(ENGINE, REPLICA),
    )
    held = GaugeMetricFamily(
        "kvgate_replica_held_tokens", "Prompt tokens that it is believed to cache.", labels=(ENGINE, REPLICA)
    )
    keys = GaugeMetricFamily("kvgate_route_index_keys", "Keys of the prefix index.", labels=(ENGINE,))
    for pool in pools:
        router = pool.router.own if isinstance(pool.router, DirectedRouter) else pool.router
        if not isinstance(router, PrefixRouter):
            continue
        keys.add_metric([pool.name], len(router.index))
        loads = router.loads.all()
        for member in pool.members:
            load, labels = loads.get(member.id), [pool.name, label_of(pool.name, member.id)]
            queued.add_metric(labels, 0 if load is None else load.queued)
            held.add_metric(labels, router.index.tokens(member.id))
    yield from (queued, held, keys)
