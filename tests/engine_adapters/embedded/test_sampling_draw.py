"""Draws: exact against the naive definition, and distributed as the weights say."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapters.embedded.sampling.draw import draw, totals
from engine_adapters.embedded.sampling.uniform import UniformStream

weights_of_a_row = st.lists(st.integers(0, 5), min_size=1, max_size=400).filter(any)


@settings(deadline=None)
@given(weights_of_a_row, st.floats(0, 1, exclude_max=True))
def test_a_draw_is_the_first_token_whose_running_sum_exceeds_the_target(
    row: list[int], uniform: float
) -> None:
    # Small integers sum without rounding, so the naive answer is the only right one.
    picked = draw(torch.tensor([row], dtype=torch.float32), torch.tensor([uniform], dtype=torch.float64))
    sums = np.cumsum(np.asarray(row, np.float64))
    assert picked.item() == int(np.flatnonzero(sums > min(uniform * sums[-1], np.nextafter(sums[-1], 0)))[0])


@settings(deadline=None)
@given(st.integers(1, 400), st.integers(0, 2**32), st.sampled_from([0.0, 0.5, 1 - 2**-53]))
def test_a_token_without_weight_is_never_drawn(vocab: int, seed: int, uniform: float) -> None:
    rng = np.random.default_rng(seed)
    row = rng.random(vocab).astype(np.float32) * (rng.random(vocab) < 0.1)
    row[rng.integers(vocab)] = 1e-30
    picked = draw(torch.from_numpy(row)[None], torch.tensor([uniform], dtype=torch.float64))
    assert row[int(picked.item())] > 0


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 400), st.integers(0, 2**32))
def test_a_row_is_drawn_alike_alone_and_among_others(rows: int, vocab: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = torch.from_numpy(rng.random((rows, vocab)).astype(np.float32))
    uniforms = torch.from_numpy(rng.random(rows))
    together = draw(weights, uniforms).tolist()
    assert together == [draw(weights[i : i + 1], uniforms[i : i + 1]).item() for i in range(rows)]


def test_totals_are_row_sums_whatever_the_width() -> None:
    for vocab in (1, 127, 128, 129, 1000):
        assert totals(torch.ones(2, vocab)).tolist() == [vocab, vocab]


def test_evenly_spaced_uniforms_give_each_token_its_exact_share() -> None:
    weights = torch.tensor([[0.1, 0.0, 0.4, 0.2, 0.3]])
    uniforms = torch.arange(0.0005, 1, 0.001, dtype=torch.float64)
    picked = draw(weights.expand(1000, 5), uniforms)
    assert torch.bincount(picked, minlength=5).tolist() == [100, 0, 400, 200, 300]


def test_a_stream_is_uniform() -> None:
    stream = UniformStream(7, 0)
    values = np.asarray([stream.at(step) for step in range(20_000)])
    observed, _ = np.histogram(values, bins=50, range=(0, 1))
    chi_square = float(((observed - 400) ** 2 / 400).sum())
    assert chi_square < 94.6  # 49 degrees of freedom, p = 1e-4; the seed is fixed
    assert abs(float(np.corrcoef(values[:-1], values[1:])[0, 1])) < 0.03


def test_streams_repeat_for_a_seed_and_differ_by_seed_and_choice() -> None:
    def first(seed: int | None, choice: int) -> tuple[float, ...]:
        stream = UniformStream(seed, choice)
        return tuple(stream.at(step) for step in range(4))

    assert first(3, 0) == first(3, 0)
    streams = [
        first(3, 0),
        first(3, 1),
        first(4, 0),
        first(-3, 0),
        first(31, 0),
        first(2**80, 0),
        first(None, 0),
    ]
    assert len({*streams, first(None, 0)}) == len(streams) + 1


def test_a_stream_is_addressed_by_step_and_not_by_how_often_it_was_asked() -> None:
    stream = UniformStream(1, 0)
    third = stream.at(2)
    assert [stream.at(step) for step in (0, 1, 2, 2)][2:] == [third, third]
