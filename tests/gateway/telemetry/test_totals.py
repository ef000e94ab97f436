from prometheus_client import CollectorRegistry, Counter

from gateway.telemetry.labels import Totals


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
