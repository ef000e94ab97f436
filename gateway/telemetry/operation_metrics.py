"""Which configuration counts and whether the process is about to end, as metric families."""

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from gateway.reload.state import ConfigState


def operation_families(config: ConfigState | None, *, draining: bool) -> list[Metric]:
    """`config` None: there is no file that could be loaded again."""
    drain = GaugeMetricFamily(
        "kvgate_draining", "1: it takes no new clients and ends soon.", value=float(draining)
    )
    if config is None:
        return [drain]
    return [
        drain,
        InfoMetricFamily(
            "kvgate_config",
            "The configuration that counts: equal hashes, equal keys.",
            {"hash": config.digest},
        ),
        GaugeMetricFamily(
            "kvgate_config_reload_failed",
            "1: the newest configuration cannot be used, and an older one counts.",
            value=float(config.failed),
        ),
        GaugeMetricFamily(
            "kvgate_config_last_success_timestamp_seconds",
            "When the configuration that counts was loaded.",
            value=config.loaded_at,
        ),
        GaugeMetricFamily(
            "kvgate_config_keys_waiting",
            "Keys that were changed and have an effect from the next start on.",
            value=len(config.waiting),
        ),
    ]


def reload_counts(config: ConfigState | None) -> list[Metric]:
    """What only goes up, so that several processes add up."""
    if config is None:
        return []
    loads = CounterMetricFamily(
        "kvgate_config_reloads",
        "Loads of the configuration behind the one at the start.",
        labels=("outcome",),
    )
    loads.add_metric(["loaded"], config.loads)
    loads.add_metric(["failed"], config.failures)
    return [loads]
