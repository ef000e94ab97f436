"""Replicas of engines behind HTTP as metric families. A replica that has left its engine has no series any more."""

from collections.abc import Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gateway.replicas.breaker import State
from gateway.replicas.member import Member
from gateway.replicas.pool import EnginePool
from gateway.telemetry.engine_metrics import ENGINE

REPLICA = "kvgate_replica"  # the label with a replica's id; empty where an engine is only one server
# Where several processes each have their own view, the worst says more than the sum.
LARGEST = frozenset(
    {
        "kvgate_replicas",
        "kvgate_replica_breaker_state",
        "kvgate_replica_ejected",
        "kvgate_replica_ttft_seconds",
        "kvgate_discovery_failing",
        "kvgate_kv_events_flow",
        "kvgate_kv_events_silent",
        "kvgate_kv_event_lag_seconds",
    }
)
_STATES: dict[State, int] = {"closed": 0, "half_open": 1, "open": 2}


def label_of(engine: str, replica: str) -> str:
    """What the label says of a replica."""
    return "" if replica == engine else replica


def replica_families(pools: Sequence[EnginePool]) -> list[Metric]:
    """Of all engines; nothing where there are none."""
    return [*_of_members(pools), *_of_engines(pools)] if pools else []


def _of_members(pools: Sequence[EnginePool]) -> list[Metric]:
    breaker = _gauge("replica_breaker_state", "0: closed, 1: half open, 2: open.")
    ejected = _gauge("replica_ejected", "1: it gets no requests for what earlier ones met there.")
    running = _gauge("replica_requests_running", "Requests that run there.")
    ttft = _gauge("replica_ttft_seconds", "Median time to first token of its newest streams.")
    ejections = CounterMetricFamily(
        "kvgate_replica_ejections",
        "How often it was left alone for a while.",
        labels=(ENGINE, REPLICA, "reason"),
    )
    for pool in pools:
        for member in pool.members:
            who = [pool.name, label_of(pool.name, member.id)]
            breaker.add_metric(who, _STATES[member.breaker.state])
            ejected.add_metric(who, float(member.state == "ejected"))
            running.add_metric(who, member.running)
            if (median := pool.ttft_of(member)) is not None:
                ttft.add_metric(who, median)
            for reason, times in _ejections(member).items():
                ejections.add_metric([*who, reason], times)
    return [breaker, ejected, running, ttft, ejections]


def _of_engines(pools: Sequence[EnginePool]) -> list[Metric]:
    replicas = GaugeMetricFamily(
        "kvgate_replicas", "Replicas by whether they get requests now.", labels=(ENGINE, "state")
    )
    retries = CounterMetricFamily(
        "kvgate_retries",
        "Requests sent to another replica, by what the one before met.",
        labels=(ENGINE, "reason"),
    )
    refused = CounterMetricFamily(
        "kvgate_retries_refused", "Retries that there was no budget for.", labels=(ENGINE,)
    )
    hedges = CounterMetricFamily(
        "kvgate_hedges", "Second requests for slow first ones, by who won.", labels=(ENGINE, "outcome")
    )
    failing = GaugeMetricFamily(
        "kvgate_discovery_failing", "1: which replicas there are cannot be found out now.", labels=(ENGINE,)
    )
    for pool in pools:
        states = [member.state for member in pool.members]
        for state in ("ready", "away", "ejected"):
            replicas.add_metric([pool.name, state], states.count(state))
        for reason, times in pool.retries.items():
            retries.add_metric([pool.name, reason], times)
        for outcome, times in pool.hedges.items():
            hedges.add_metric([pool.name, outcome], times)
        refused.add_metric([pool.name], pool.budget.refused)
        if pool.discovery is not None:
            failing.add_metric([pool.name], float(pool.discovery.failing))
    return [replicas, retries, refused, hedges, failing]


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"kvgate_{name}", text, labels=(ENGINE, REPLICA))


def _ejections(member: Member) -> dict[str, int]:
    found = {str(cause): times for cause, times in member.breaker.opened.items()}
    return {**found, "slow": member.slow_ejections} if member.slow_ejections else found
