from prometheus_client import CollectorRegistry, Counter

from gateway.telemetry.canon_metrics import CanonMetrics
from gateway.telemetry.labels import Totals
from gateway.transport.record import CanonTold


def counted() -> tuple[CollectorRegistry, Totals]:
    registry = CollectorRegistry()
    return registry, Totals(Counter("seen", "Seen.", ("kind",), registry=registry))


def test_what_was_added_is_there_once_it_is_settled_and_only_once() -> None:
    registry, totals = counted()
    for amount in (1, 2, 3):
        totals.add(amount, "a")
    totals.add(5, "b")
    assert registry.get_sample_value("seen_total", {"kind": "a"}) is None
    totals.settle()
    totals.settle()
    assert registry.get_sample_value("seen_total", {"kind": "a"}) == 6
    assert registry.get_sample_value("seen_total", {"kind": "b"}) == 5


def test_nothing_added_is_a_series_at_zero() -> None:
    registry, totals = counted()
    totals.add(0, "a")
    totals.settle()
    assert registry.get_sample_value("seen_total", {"kind": "a"}) == 0


def test_a_counter_without_labels_is_its_only_series() -> None:
    registry = CollectorRegistry()
    totals = Totals(Counter("seen", "Seen.", registry=registry))
    totals.add(2)
    totals.add(3)
    totals.settle()
    assert registry.get_sample_value("seen_total") == 5


def test_what_canon_did_is_counted() -> None:
    registry = CollectorRegistry()
    metrics = CanonMetrics(registry)
    assert registry.get_sample_value("kvgate_canon_bypassed_total") == 0
    metrics.ended(CanonTold("full", edits={"newlines": 2}, findings={"date": 1}, gain_tokens=16))
    metrics.ended(CanonTold("observe", applied=False, edits={"newlines": 1}, gain_tokens=-4))
    metrics.ended(CanonTold("safe", bypassed=True))
    metrics.settle()
    told = {
        (sample.name, *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    assert told == {
        ("kvgate_canon_edits_total", "newlines", "true"): 2,
        ("kvgate_canon_edits_total", "newlines", "false"): 1,
        ("kvgate_canon_findings_total", "date"): 1,
        ("kvgate_canon_bypassed_total",): 1,
        ("kvgate_canon_gain_tokens_total",): 16,
        ("kvgate_canon_lost_tokens_total",): 4,
    }
