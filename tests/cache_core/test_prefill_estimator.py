"""What a token costs is learned by depth, whatever the sizes of the steps it is learned from."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_core.prefill_estimator import Chunk, PrefillEstimator

STEP, TOKEN, ATTENTION = 10e-3, 4e-5, 4e-9  # seconds, about as an accelerator has them


def took(chunks: list[Chunk], step: float = STEP) -> float:
    """What a step of these chunks takes."""
    return step + sum(n * (TOKEN + ATTENTION * (start + (n + 1) / 2)) for start, n in chunks)


def at(estimator: PrefillEstimator, depth: int) -> float:
    """Seconds of a token that deep."""
    token, attention = estimator.token
    return token + attention * depth


def test_it_is_learned_by_depth() -> None:
    estimator = PrefillEstimator(1.0)
    for start in (0, 1000, 8000, 30_000) * 10:
        estimator.observe([(start, 512)], 512 * (1e-3 + 1e-7 * (start + 256.5)))
    assert estimator.block_seconds(0, 1, 16)[0] == pytest.approx(16e-3, rel=0.01)
    assert estimator.block_seconds(20_000, 2, 16)[1] == pytest.approx(16 * (1e-3 + 1e-7 * 20_024.5), rel=0.01)


def test_until_something_was_measured_it_is_what_was_assumed() -> None:
    assert PrefillEstimator(2e-3, 1e-6).token == (2e-3, 1e-6)


def test_ends_of_warm_prompts_make_no_token_look_dear() -> None:
    dice, estimator = random.Random(3), PrefillEstimator(1e-3)
    for start in [*range(0, 7168, 512)] * 3:
        estimator.observe([(start, 512)], took([(start, 512)]))
    for _ in range(1000):
        end = [(dice.choice([500, 2000, 7000]), dice.randint(2, 40))]
        estimator.observe(end, took(end) * dice.uniform(0.9, 1.1))
    for depth in (100, 4000, 8000):
        assert at(estimator, depth) == pytest.approx(TOKEN + ATTENTION * depth, rel=0.15)


def test_chunks_of_several_prompts_in_one_step_tell_as_much() -> None:
    dice, estimator = random.Random(4), PrefillEstimator(1e-3)
    for _ in range(60):
        chunks = [(dice.randint(0, 9000), dice.randint(50, 900)) for _ in range(dice.randint(1, 4))]
        estimator.observe(chunks, took(chunks, step=dice.uniform(9e-3, 11e-3)))
    assert at(estimator, 3000) == pytest.approx(TOKEN + ATTENTION * 3000, rel=0.05)


def test_where_sizes_do_not_differ_the_time_is_put_down_to_the_tokens() -> None:
    estimator = PrefillEstimator(1.0)
    for _ in range(20):
        estimator.observe([(0, 512)], 0.5)
    assert at(estimator, 256) == pytest.approx(0.5 / 512, rel=0.01)


def test_newer_measurements_count_more() -> None:
    estimator = PrefillEstimator(1.0)
    for seconds in [0.1] * 50 + [0.4] * 50:
        estimator.observe([(0, 512)], seconds)
    assert at(estimator, 256) == pytest.approx(0.4 / 512, rel=0.05)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_what_cannot_be_is_ignored(seconds: float) -> None:
    estimator = PrefillEstimator(1e-3)
    estimator.observe([(0, 100)], seconds)
    estimator.observe([], 1.0)
    assert estimator.token == (1e-3, 0.0)


@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 1 << 14)), min_size=1, max_size=4),
            st.floats(0, 1e4),
        ),
        max_size=30,
    )
)
def test_no_measurement_makes_a_cost_negative_or_no_number(steps: list[tuple[list[Chunk], float]]) -> None:
    estimator = PrefillEstimator(1e-3)
    for chunks, seconds in steps:
        estimator.observe(chunks, seconds)
        found = estimator.block_seconds(1000, 3, 16)
        assert np.isfinite(found).all()
        assert (found >= 0).all()
