"""Labels have an end, and a time series is found again."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter

from gateway.telemetry.labels import OTHER, Bounded, Series


@given(st.lists(st.text(max_size=8)), st.integers(1, 5))
def test_no_more_names_pass_than_are_allowed_and_who_passed_once_passes_again(
    names: list[str], most: int
) -> None:
    bounded = Bounded(most)
    passed = [bounded(name) for name in names]
    allowed = list(dict.fromkeys(names))[:most]
    assert passed == [name if name in allowed else OTHER for name in names]


def test_a_time_series_is_one_however_it_is_found() -> None:
    registry = CollectorRegistry()
    counter = Counter("things", "", ("kind",), registry=registry)
    series = Series(counter)
    series("a").inc()
    series("a").inc()
    counter.labels("a").inc()
    series("b").inc(5)
    assert registry.get_sample_value("things_total", {"kind": "a"}) == 3
    assert registry.get_sample_value("things_total", {"kind": "b"}) == 5
