"""What was asked of the directory of prefixes, and told to it. Without one there is nothing."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, Metric

from gateway.directory.directed_router import DirectedRouter
from gateway.replicas.pool import EnginePool
from gateway.telemetry.engine_metrics import ENGINE


def directory_families(pools: Sequence[EnginePool]) -> Iterator[Metric]:
    """Of all engines."""
    lookups = CounterMetricFamily(
        "kvgate_directory_lookups",
        "Questions to the directory, by what came of them; late and away: the gateway went on with what it knows.",
        labels=(ENGINE, "outcome"),
    )
    told = CounterMetricFamily(
        "kvgate_directory_told_keys", "Keys of prefixes that were told to it.", labels=(ENGINE,)
    )
    for pool in pools:
        if isinstance(pool.router, DirectedRouter):
            directory = pool.router.directory
            for outcome, count in sorted(getattr(directory, "lookups", {}).items()):
                lookups.add_metric([pool.name, outcome], count)
            told.add_metric([pool.name], getattr(directory, "told", 0))
    yield from (lookups, told)
