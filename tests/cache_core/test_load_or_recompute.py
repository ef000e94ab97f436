"""The choice between loading and recomputing is never worse than the better pure way."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cache_core.load_or_recompute import DecayedLine, LoadCost, LoadEstimator, Plan, plan
from cache_core.metrics import TierName
from cache_core.prefill_estimator import PrefillEstimator

TIERS: tuple[TierName, ...] = ("host", "disk", "store")
COSTS = st.builds(LoadCost, setup=st.floats(0, 5), block=st.floats(0, 5))


def seconds_of(
    made: Plan, tiers: list[TierName], costs: dict[TierName, LoadCost], compute: list[float]
) -> float:
    """The model, told block by block: the front, then the rear beside the recomputing."""

    def load(part: list[TierName]) -> float:
        return sum(costs[tier].setup for tier in set(part)) + sum(costs[tier].block for tier in part)

    middle = sum(compute[made.front : made.split])
    return load(tiers[: made.front]) + max(middle, load(tiers[made.split :]))


@given(
    tiers=st.lists(st.sampled_from(TIERS), max_size=24),
    each=st.tuples(COSTS, COSTS, COSTS),
    compute=st.lists(st.floats(0, 5), min_size=24, max_size=24),
    overlap=st.booleans(),
)
def test_never_worse_than_the_better_pure_way_and_as_the_model_says(
    tiers: list[TierName], each: tuple[LoadCost, ...], compute: list[float], overlap: bool
) -> None:
    costs = dict(zip(TIERS, each, strict=True))
    compute = compute[: len(tiers)]
    made = plan(tiers, costs, np.array(compute), overlap)
    assert made.seconds <= made.best_pure + 1e-9
    assert made.seconds == pytest.approx(seconds_of(made, tiers, costs, compute), abs=1e-9)
    load_all, recompute_all = (
        Plan(len(tiers), len(tiers), len(tiers), 0, 0, 0),
        Plan(0, len(tiers), len(tiers), 0, 0, 0),
    )
    assert made.load_all == pytest.approx(seconds_of(load_all, tiers, costs, compute), abs=1e-9)
    assert made.recompute_all == pytest.approx(seconds_of(recompute_all, tiers, costs, compute), abs=1e-9)
    assert 0 <= made.front <= made.split <= len(tiers)
    assert made.loaded + made.recomputed == len(tiers)
    assert overlap or made.split == len(tiers), "without overlap only a front is loaded"
    event = made.decided(tiers)
    assert sum(event.loaded.values()) == made.loaded
    assert event.recomputed == made.recomputed


@given(
    tiers=st.lists(st.just("disk"), max_size=12),
    cost=COSTS,
    compute=st.lists(st.floats(0, 5), min_size=12, max_size=12),
)
def test_within_one_tier_no_split_from_the_two_ends_is_better(
    tiers: list[TierName], cost: LoadCost, compute: list[float]
) -> None:
    compute = compute[: len(tiers)]
    costs: dict[TierName, LoadCost] = {"disk": cost}
    made = plan(tiers, costs, np.array(compute))
    n = len(tiers)
    others = [seconds_of(Plan(0, split, n, 0, 0, 0), tiers, costs, compute) for split in range(n + 1)]
    assert made.seconds <= min(others) + 1e-9


def test_both_ends_meet_where_they_take_equally_long() -> None:
    made = plan(["disk"] * 10, {"disk": LoadCost(0.0, 1.0)}, np.full(10, 1.0))
    assert (made.front, made.split, made.seconds) == (0, 5, 5.0)
    assert made.best_pure == 10.0


def test_a_warm_front_is_loaded_and_a_slow_rear_recomputed() -> None:
    costs: dict[TierName, LoadCost] = {"host": LoadCost(0.0, 0.1), "disk": LoadCost(50.0, 1.0)}
    made = plan(["host"] * 5 + ["disk"] * 5, costs, np.full(10, 1.0), overlap=False)
    assert (made.front, made.split) == (5, 10)


def test_the_choice_follows_depth() -> None:
    """Attention makes deep tokens dear: where loading and computing break even, the rear is what is loaded."""
    estimator = PrefillEstimator(1e-4, 1e-8)
    shallow = plan(["disk"] * 8, {"disk": LoadCost(0.0, 0.002)}, estimator.block_seconds(0, 8, 16))
    deep = plan(["disk"] * 8, {"disk": LoadCost(0.0, 0.002)}, estimator.block_seconds(200_000, 8, 16))
    assert deep.loaded > shallow.loaded


def test_ties_are_loaded() -> None:
    made = plan(["host"] * 3, {"host": LoadCost(0.0, 1.0)}, np.full(3, 1.0), overlap=False)
    assert made.loaded == 3


def test_nothing_found_is_nothing_to_do() -> None:
    made = plan([], {}, np.empty(0))
    assert (made.loaded, made.recomputed, made.seconds) == (0, 0, 0.0)


def test_regret_is_what_the_better_pure_way_would_have_saved() -> None:
    made = plan(["disk"] * 4, {"disk": LoadCost(0.0, 1.0)}, np.full(4, 2.0), overlap=False)
    assert made.regret(4.0) == 0.0
    assert made.regret(7.0) == 3.0


def test_costs_for_every_block_are_asked_for() -> None:
    with pytest.raises(ValueError, match="recompute costs"):
        plan(["host"], {"host": LoadCost(0.0, 1.0)}, np.empty(0))


@given(
    fixed=st.floats(0, 10),
    slope=st.floats(0, 10),
    xs=st.lists(st.floats(1, 1000), min_size=2, max_size=20),
)
def test_a_line_is_found_where_there_is_one(fixed: float, slope: float, xs: list[float]) -> None:
    line = DecayedLine(1.0, 1.0)
    for x in [*xs, 1.0, 1000.0]:
        line.observe(x, fixed + slope * x)
    assert line.at(500.0) == pytest.approx(fixed + slope * 500, rel=1e-3, abs=1e-3)


@given(st.lists(st.tuples(st.floats(allow_nan=True), st.floats(allow_nan=True)), max_size=30))
@example([(2.2250738585072014e-308, 1.0)])
@example([(1e300, 1.7e308)])
def test_no_measurement_makes_a_cost_negative_or_no_number(seen: list[tuple[float, float]]) -> None:
    line = DecayedLine(0.5, 0.5)
    for x, y in seen:
        line.observe(x, y)
    assert line.fixed >= 0
    assert line.slope >= 0
    assert np.isfinite(line.at(1e6))


def test_newer_measurements_count_more() -> None:
    loads = LoadEstimator({"disk": 1e9}, {"disk": 0.0})
    for seconds in [1e-3] * 50 + [4e-3] * 50:
        loads.observe("disk", 1_000_000, seconds)
    assert loads.cost("disk", 1_000_000).block == pytest.approx(4e-3, rel=0.1)
    assert loads.bytes_seconds("disk", 3_000_000) == pytest.approx(12e-3, rel=0.1)


def test_a_line_that_forgets_says_the_same_until_it_sees_more_and_then_what_that_says() -> None:
    line = DecayedLine(0.5, 1.0)
    for x in (1, 1000) * 20:
        line.observe(x, 3.0 * x)
    before = line.at(10)
    line.forget()
    assert line.at(10) == before
    line.observe(4, 2.0)
    assert (line.fixed, line.slope) == (0.5, pytest.approx(1.5 / 4)), (
        "the fixed part is the assumed one again"
    )
