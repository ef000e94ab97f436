"""Metrics of requests as OpenTelemetry sends them, made from what they add up to whenever they are to be sent.

An instrument of the SDK's would be told every number of every request by itself, at ten times the cost.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TypeAlias

from opentelemetry.metrics import Histogram as Instrument
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)

from gateway.telemetry.buckets import QUEUE
from gateway.telemetry.distribution import Distribution
from gateway.telemetry.facts import RequestFacts, RequestLabels
from gateway.telemetry.otel.attributes import Attributes, Value, who
from gateway.telemetry.otel.instruments import (
    BY_TIER,
    COUNTERS,
    OF_ALL,
    OF_ANSWERED,
    AttributesOf,
    Distributed,
)
from gateway.telemetry.tally import Alike, Tallied, Tally, amounts, distributions, from_tier, tiers
from gateway.transport.record import RequestRecord

Key: TypeAlias = tuple[tuple[str, Value], ...]


class Meters:
    """Metrics of all requests so far, or with `delta` of those since they were last asked for."""

    def __init__(self, tally: Tally, *, delta: bool, histograms: bool = True) -> None:
        self._own = Tally() if delta else None
        self._tally = tally
        self._histograms = histograms
        self._since = time.time_ns()
        self._temporality = AggregationTemporality.DELTA if delta else AggregationTemporality.CUMULATIVE

    def settle(self, alike: Alike) -> None:
        """Requests of a batch have ended."""
        if self._own is not None:
            self._own.add(alike)

    def metrics(self) -> list[Metric]:
        """Those of which there are numbers. Called on one thread, whichever."""
        now = time.time_ns()
        if self._own is None:
            all_of_them = self._tally.now()
            since = min((each.since for each in all_of_them), default=now)
        else:
            all_of_them, since, self._since = self._own.take(), self._since, now
        answered = [each for each in all_of_them if each.labels.reuse_class is not None]
        made = list(self._sums(answered, since, now))
        if self._histograms:
            made.append(self._histogram(OF_ALL, all_of_them, since, now))
            made += [self._histogram(each, answered, since, now) for each in OF_ANSWERED]
        return [each for each in made if each.data.data_points]

    def _sums(self, answered: Sequence[Tallied], since: int, now: int) -> Iterator[Metric]:
        for name, unit, text, attributes, amount in COUNTERS:
            values = amounts(answered, _keyed(attributes), amount)
            yield self._sum(name, unit, text, values.items(), since, now)
        by_tier = [
            ((*about, ("kvgate.tier", tier)), tokens)
            for tier in tiers(answered)
            for about, tokens in amounts(answered, _keyed(who), from_tier(tier)).items()
        ]
        yield self._sum(*BY_TIER, by_tier, since, now)

    def _sum(
        self, name: str, unit: str, text: str, values: Iterable[tuple[Key, float]], since: int, now: int
    ) -> Metric:
        points = [NumberDataPoint(dict(about), since, now, value) for about, value in values]
        return Metric(name, text, unit, Sum(points, self._temporality, is_monotonic=True))

    def _histogram(self, one: Distributed, some: Sequence[Tallied], since: int, now: int) -> Metric:
        points = [
            _point(dict(about), since, now, values)
            for measured, attributes in one.measured.items()
            for about, values in distributions(some, _keyed(attributes), attrgetter(measured)).items()
        ]
        return Metric(one.name, one.text, one.unit, Histogram(points, self._temporality))


def _point(about: Attributes, since: int, now: int, values: Distribution) -> HistogramDataPoint:
    return HistogramDataPoint(
        attributes=about,
        start_time_unix_nano=since,
        time_unix_nano=now,
        count=values.count,
        sum=values.sum,
        bucket_counts=values.counts,
        explicit_bounds=values.bounds,
        min=values.least,
        max=values.most,
    )


def _keyed(attributes: AttributesOf) -> Callable[[RequestLabels], Key]:
    return lambda labels: tuple(attributes(labels).items())


class Recorded:
    """Histograms of the SDK's own, where it is to choose their buckets."""

    def __init__(self, meter: Meter) -> None:
        self._made = [(one, _instrument(meter, one)) for one in (OF_ALL, *OF_ANSWERED)]

    def settle(self, alike: Alike) -> None:
        """Requests of a batch have ended."""
        for labels, some in alike.items():
            for one, instrument in self._made:
                if labels.reuse_class is not None or one is OF_ALL:
                    for measured, attributes in one.measured.items():
                        _record(instrument, [getattr(each, measured) for each in some], attributes(labels))


class QueueWaits:
    """Waiting for a full engine, of the few that had to."""

    def __init__(self, meter: Meter) -> None:
        text = "Waiting for a full engine, where one had to."
        self._waits = _instrument(meter, Distributed("kvgate.queue.wait.duration", "s", text, QUEUE, {}))

    def ended(self, facts: RequestFacts, record: RequestRecord) -> None:
        """Count a request if it waited."""
        for stage in record.stages.timed:
            if stage.name == "queue":
                about = who(facts.labels) | {"kvgate.tenant": record.tenant.name}
                self._waits.record(stage.end - stage.start, about)


def _instrument(meter: Meter, one: Distributed) -> Instrument:
    return meter.create_histogram(
        one.name, one.unit, one.text, explicit_bucket_boundaries_advisory=one.bounds
    )


def _record(histogram: Instrument, values: Sequence[float | None], attributes: Attributes) -> None:
    for value in values:
        if value is not None:
            histogram.record(value, attributes)
