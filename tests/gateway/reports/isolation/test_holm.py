"""Each p grows by what was looked at beside it, and their order stays."""

from random import Random

from gateway.reports.isolation.holm import adjusted


def test_it_is_holm_s_own_example_of_four():
    found = adjusted({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert {name: round(p, 9) for name, p in found.items()} == {"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06}


def test_none_is_above_one_and_one_alone_stays_what_it_is():
    assert adjusted({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}
    assert adjusted({"a": 0.3}) == {"a": 0.3}
    assert adjusted({}) == {}


def test_any_is_wrong_as_rarely_as_the_bound_says():
    draw = Random(1)
    runs = [min(adjusted({i: draw.random() for i in range(6)}).values()) < 0.05 for _ in range(4000)]
    assert 0.03 < sum(runs) / len(runs) < 0.06  # without it 0.26
