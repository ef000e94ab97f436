"""Figures of several processes as one: what each counted is added up, also of those that have ended."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from prometheus_client.core import Metric

from gateway.telemetry import replica_metrics

# [name, text, type, unit, [[sample's name, {label: value}, value], ...]], so that a frame takes it
Family: TypeAlias = Sequence[Any]

# Where the sum over processes says nothing, the largest does.
_LARGEST = replica_metrics.LARGEST | {
    "kvgate_ledger_failing",
    "kvgate_shared_state_away",
    "kvgate_gateways",
}
_COUNTED = frozenset({"counter", "histogram", "summary"})


def families_sent(metrics: Iterable[Metric]) -> list[Family]:
    """Metric families as values that a frame takes."""
    return [
        [m.name, m.documentation, m.type, m.unit, [[s.name, s.labels, s.value] for s in m.samples]]
        for m in metrics
    ]


def counted(families: Iterable[Family]) -> list[Family]:
    """Those that only go up: what is left of a process that has ended."""
    return [family for family in families if family[2] in _COUNTED]


def merged(snapshots: Iterable[Iterable[Family]]) -> list[Metric]:
    """One family a name, with the samples of all; the order is that of the first snapshot."""
    found: dict[str, _Sum] = {}
    for snapshot in snapshots:
        for family in snapshot:
            name = family[0]
            if name not in found:
                found[name] = _Sum(family)
            found[name].add(family[4])
    return [each.metric() for each in found.values()]


class _Sum:
    def __init__(self, family: Family) -> None:
        self._head = family[:4]
        self._largest = family[0] in _LARGEST
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def add(self, samples: Iterable[tuple[str, Mapping[str, str], float]]) -> None:
        values = self._values
        for name, labels, value in samples:
            key = (name, tuple(labels.items()))
            if key not in values:
                values[key] = value
            else:
                values[key] = max(values[key], value) if self._largest else values[key] + value

    def metric(self) -> Metric:
        name, text, kind, unit = self._head
        metric = Metric(name, text, kind, unit)
        for (sample, labels), value in self._values.items():
            metric.add_sample(sample, dict(labels), value)
        return metric
