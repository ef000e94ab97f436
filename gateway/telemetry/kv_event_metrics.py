"""What replicas tell of their caches, as metric families. Engines that nobody listens to have no series."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gateway.replicas.pool import EnginePool
from gateway.telemetry.engine_metrics import ENGINE
from gateway.telemetry.replica_metrics import REPLICA, label_of


def kv_event_families(pools: Sequence[EnginePool]) -> Iterator[Metric]:
    """Of all engines that publish."""
    events = CounterMetricFamily(
        "kvgate_kv_events", "Events of replicas' caches, by kind.", labels=(ENGINE, "kind")
    )
    gaps = CounterMetricFamily(
        "kvgate_kv_event_gaps",
        "Times that events were lost or could not be read, after which the replica is taken to hold nothing.",
        labels=(ENGINE,),
    )
    flow = GaugeMetricFamily(
        "kvgate_kv_events_flow",
        "1: the replica says what it holds; 0: that is guessed from its answers.",
        labels=(ENGINE, REPLICA),
    )
    silent = GaugeMetricFamily(
        "kvgate_kv_events_silent",
        "1: it is to publish, and by its answers and its own word it does not, or for one of several caches alone.",
        labels=(ENGINE, REPLICA),
    )
    lag = GaugeMetricFamily(
        "kvgate_kv_event_lag_seconds",
        "Of its newest batch, from when it was made to when it was read, by the clocks of both.",
        labels=(ENGINE, REPLICA),
    )
    for pool in pools:
        if pool.events is None:
            continue
        for kind, count in sorted(pool.events.events.items()):
            events.add_metric([pool.name, kind], count)
        gaps.add_metric([pool.name], pool.events.gaps)
        for follower in pool.events.all():
            who, state = [pool.name, label_of(pool.name, follower.replica)], follower.state
            flow.add_metric(who, float(state.flows))
            silent.add_metric(who, float(state.silent is not None))
            if state.lag_s is not None:
                lag.add_metric(who, state.lag_s)
    yield from (events, gaps, flow, silent, lag)
