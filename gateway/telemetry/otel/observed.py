"""What routing, limits and replicas say of themselves at `/metrics`, sent by OpenTelemetry as well.

The numbers are the very same: whenever they are to be sent, the families of a scrape are made once, and each
instrument gives what its family has. A name is the one at `/metrics` with `kvgate.` for `kvgate_`, and so is a label's.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from prometheus_client.core import Metric

# Called on a thread of the SDK's.
Families: TypeAlias = Callable[[], Iterable[Metric]]

COUNTERS: Mapping[str, str] = {  # unit by family
    "kvgate_routed_requests": "{request}",
    "kvgate_routed_prompts": "{request}",
    "kvgate_routed_predicted_tokens": "{token}",
    "kvgate_routed_reused_tokens": "{token}",
    "kvgate_limited_requests": "{request}",
    "kvgate_replica_ejections": "{ejection}",
    "kvgate_retries": "{request}",
    "kvgate_retries_refused": "{request}",
    "kvgate_hedges": "{request}",
    "kvgate_kv_events": "{event}",
    "kvgate_kv_event_gaps": "{gap}",
    "kvgate_directory_lookups": "{lookup}",
    "kvgate_directory_told_keys": "{key}",
    "kvgate_shared_state_outages": "{outage}",
    "kvgate_shared_state_failed_calls": "{call}",
    "kvgate_shared_state_away_seconds": "s",
}
GAUGES: Mapping[str, str] = {
    "kvgate_requests_in_flight": "{request}",  # always there, without which nothing is sent
    "kvgate_body_bytes_in_flight": "By",
    "kvgate_replicas": "{replica}",
    "kvgate_replica_breaker_state": "1",
    "kvgate_replica_ejected": "1",
    "kvgate_replica_requests_running": "{request}",
    "kvgate_replica_ttft_seconds": "s",
    "kvgate_replica_queued_tokens": "{token}",
    "kvgate_replica_held_tokens": "{token}",
    "kvgate_route_index_keys": "{key}",
    "kvgate_discovery_failing": "1",
    "kvgate_kv_events_flow": "1",
    "kvgate_kv_events_silent": "1",
    "kvgate_kv_event_lag_seconds": "s",
    "kvgate_queue_waiting": "{request}",
    "kvgate_queue_running": "{request}",
    "kvgate_shared_state_away": "1",
    "kvgate_gateways": "{gateway}",
}


def observe(meter: Meter, families: Families) -> None:
    """Send what `families` has under the names above, each time that metrics are sent."""
    newest = _Newest(families)
    for name, unit in COUNTERS.items():
        meter.create_observable_counter(sent_name(name), [partial(newest.observations, name)], unit)
    for name, unit in GAUGES.items():
        meter.create_observable_gauge(sent_name(name), [partial(newest.observations, name)], unit)


def sent_name(name: str) -> str:
    """`kvgate.retries` of `kvgate_retries`, `kvgate.reason` of a label `reason`."""
    return f"kvgate.{name.removeprefix('kvgate_')}"


class _Newest:
    """Families as they are now. They are made again when one is asked for a second time: then it is sent again."""

    def __init__(self, families: Families) -> None:
        self._families = families
        self._left: dict[str, Sequence[Observation]] = {}

    def observations(self, name: str, _: CallbackOptions) -> Sequence[Observation]:
        if name not in self._left:
            self._left = dict.fromkeys((*COUNTERS, *GAUGES), ()) | {
                each.name: [
                    Observation(
                        sample.value, {sent_name(label): said for label, said in sample.labels.items()}
                    )
                    for sample in each.samples
                ]
                for each in self._families()
                if each.name in COUNTERS or each.name in GAUGES
            }
        return self._left.pop(name)
