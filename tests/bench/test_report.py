"""Figures say truly whether their target was reached, as a table and as JSON."""

import io

import orjson
import pytest

from bench.measure import alternate
from bench.report import Figure, as_json, print_table


def figure(ratio: float | None, target: float, sense: str) -> Figure:
    peer = None if ratio is None else 1.0
    return Figure("what", "peer", peer, 2.0, "s", ratio, target, sense)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratio", "sense", "reached"),
    [
        (1.1, "at least", True),
        (1.0, "at least", True),
        (0.9, "at least", False),
        (0.9, "at most", True),
        (1.1, "at most", False),
        (None, "at least", None),
        (None, "at most", None),
    ],
)
def test_reached_follows_the_sense_and_is_unknown_without_a_peer(
    ratio: float | None, sense: str, reached: bool | None
) -> None:
    one = figure(ratio, 1.0, sense)
    assert one.reached is reached
    parsed = orjson.loads(as_json([one], {"threads": 2}))
    assert parsed["facts"] == {"threads": 2}
    assert parsed["figures"][0]["reached"] is reached
    assert parsed["figures"][0]["ratio"] == ratio


def test_the_table_has_a_line_a_figure_and_says_what_was_not_measured() -> None:
    out = io.StringIO()
    print_table([figure(2.0, 1.5, "at least"), figure(None, 0.5, "at most")], {"device": "cpu"}, out)
    said = out.getvalue()
    assert "at least 1.5" in said
    assert "yes" in said
    assert "not measured" in said
    assert "device: cpu" in said


def test_cases_alternate_and_their_medians_come_back() -> None:
    order: list[str] = []
    values = {"a": iter([5.0, 1.0, 3.0]), "b": iter([10.0, 30.0, 20.0])}

    def measure(name: str) -> float:
        order.append(name)
        return next(values[name])

    figures = alternate(
        {name: lambda name=name: measure(name) for name in values},  # type: ignore[misc]
        3,
        lambda _: None,
    )
    assert order == ["a", "b"] * 3
    assert figures == {"a": 3.0, "b": 20.0}
