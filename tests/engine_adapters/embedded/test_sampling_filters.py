"""top_k, top_p and min_p against their definitions, token by token."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapters.base import SamplingParams
from engine_adapters.embedded.sampling.filters import kept_weights

params_of_a_row = st.builds(
    SamplingParams,
    top_k=st.sampled_from([0, 1, 2, 5, 300, 10_000]),
    top_p=st.sampled_from([1.0, 0.0, 0.05, 0.5, 0.9, 0.999]),
    min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
)


def kept_by_definition(row: np.ndarray, params: SamplingParams) -> set[int]:
    """What may be drawn, by the words of the definition, one token at a time and in float64."""
    probability = {token: math.exp(value) for token, value in enumerate(row.tolist())}
    ranked = sorted(probability, key=lambda token: -probability[token])
    if params.top_k:
        ranked = ranked[: params.top_k]
    if params.top_p < 1:
        mass = params.top_p * sum(probability[token] for token in ranked)
        total, kept = 0.0, []
        for token in ranked:
            kept.append(token)
            total += probability[token]
            if total >= mass:
                break
        ranked = kept
    floor = params.min_p * probability[ranked[0]]
    return {token for token in ranked if probability[token] >= floor}


def spread_logits(seed: int, rows: int, vocab: int, scale: float) -> torch.Tensor:
    """Distinct values, so that no tie makes the naive definition ambiguous."""
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(
        (rng.permuted(np.tile(np.arange(vocab), (rows, 1)), axis=1) * scale).astype(np.float32)
    )
    return logits - logits.amax(1, keepdim=True)


@settings(deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(params_of_a_row, min_size=1, max_size=4),
    st.sampled_from([1, 7, 300, 2000]),
)
@pytest.mark.parametrize("scale", [0.0007, 0.03, 0.25])
def test_what_is_kept_is_what_the_definitions_keep(
    scale: float, seed: int, params: list[SamplingParams], vocab: int
) -> None:
    scaled = spread_logits(seed, len(params), vocab, min(scale, 75 / vocab))  # exp stays normal in float32
    weights = kept_weights(scaled, params)
    for row, row_params in enumerate(params):
        kept = set(torch.nonzero(weights[row])[:, 0].tolist())
        expected = kept_by_definition(scaled[row].double().numpy(), row_params)
        # A running sum may round across the boundary of top_p by one token, and nowhere else.
        assert abs(len(kept) - len(expected)) <= (row_params.top_p < 1)
        assert kept <= expected or expected <= kept


@settings(deadline=None)
@given(st.integers(0, 2**32), st.lists(params_of_a_row, min_size=2, max_size=5))
def test_a_row_is_filtered_alike_alone_and_among_others(seed: int, params: list[SamplingParams]) -> None:
    rng = np.random.default_rng(seed)
    scaled = torch.from_numpy(rng.integers(-6, 1, (len(params), 500)).astype(np.float32))  # full of ties
    scaled[:, 0] = 0
    together = kept_weights(scaled, params)
    for row, row_params in enumerate(params):
        assert torch.equal(together[row], kept_weights(scaled[row : row + 1], [row_params])[0])


@settings(deadline=None)
@given(st.integers(0, 2**32), params_of_a_row)
def test_kept_weights_keep_their_ratio_and_the_highest_always_stays(
    seed: int, params: SamplingParams
) -> None:
    scaled = spread_logits(seed, 1, 700, 0.01)
    weights = kept_weights(scaled, [params])[0]
    kept = weights > 0
    assert torch.equal(weights[kept], scaled[0].exp()[kept])
    assert weights[scaled[0].argmax()] == 1


def test_equal_logits_stay_together_at_every_boundary() -> None:
    scaled = torch.tensor([[0.0, -1.0, -1.0, -1.0, -9.0]])
    for params in (
        SamplingParams(top_k=2),
        SamplingParams(top_p=0.6),
        SamplingParams(min_p=math.exp(-1.0) * 0.999),
    ):
        assert (kept_weights(scaled, [params])[0] > 0).tolist() == [True, True, True, True, False]


def test_top_p_applies_to_what_top_k_left() -> None:
    scaled = torch.tensor([[0.5, 0.2, 0.15, 0.15]]).log()
    scaled -= scaled.amax()
    # Of the top two, renormalized to 0.714 and 0.286, the first alone reaches 0.7; of all four it would not.
    assert torch.count_nonzero(kept_weights(scaled, [SamplingParams(top_k=2, top_p=0.7)])) == 1
    assert torch.count_nonzero(kept_weights(scaled, [SamplingParams(top_p=0.7)])) == 2


def test_a_nucleus_wider_than_the_first_look_is_found_exactly() -> None:
    scaled = torch.zeros(2, 5000)
    scaled[:, 2500:] = -1.0
    scaled[1, 0] = 0.0
    flat = kept_weights(scaled, [SamplingParams(top_p=0.5), SamplingParams(top_p=0.9)])
    assert torch.count_nonzero(flat, dim=1).tolist() == [2500, 5000]
