"""Penalties, bias and bans against their formulas."""

from collections import Counter

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapters.base import SamplingParams
from engine_adapters.embedded.sampling import SamplingState
from engine_adapters.embedded.sampling.counts import TokenCounts
from engine_adapters.embedded.sampling.edits import apply_edits, has_edits

VOCAB = 20
EOS = (18, 19)

token = st.integers(0, VOCAB - 1)
params_of_a_row = st.builds(
    SamplingParams,
    presence_penalty=st.sampled_from([0.0, 0.7, -2.0]),
    frequency_penalty=st.sampled_from([0.0, 0.3, -1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.8]),
    logit_bias=st.dictionaries(token, st.sampled_from([-100.0, -1.5, 4.0])),
    ignore_eos=st.booleans(),
    min_tokens=st.integers(0, 6),
    stop_token_ids=st.sampled_from([(), (3,)]),
)
row = st.tuples(params_of_a_row, st.lists(token, max_size=12), st.lists(token, max_size=12))


def state_of(params: SamplingParams, prompt: list[int], generated: list[int]) -> SamplingState:
    state = SamplingState(params, np.asarray(prompt, np.int32), 0, None, EOS)
    for token_id in generated:
        state.accept(token_id)
    return state


def edited_by_formula(
    value: float, token_id: int, params: SamplingParams, prompt: list[int], out: list[int]
) -> float:
    if (token_id in EOS or token_id in params.stop_token_ids) and len(out) < params.min_tokens:
        return float("-inf")
    if token_id in EOS and params.ignore_eos:
        return float("-inf")
    if token_id in prompt or token_id in out:
        value = value / params.repetition_penalty if value > 0 else value * params.repetition_penalty
    count = Counter(out)[token_id]
    value -= count * params.frequency_penalty + (count > 0) * params.presence_penalty
    return value + params.logit_bias.get(token_id, 0.0)


@settings(deadline=None)
@given(st.lists(row, min_size=1, max_size=4), st.integers(0, 2**32))
def test_every_logit_follows_the_formulas(
    rows: list[tuple[SamplingParams, list[int], list[int]]], seed: int
) -> None:
    logits = torch.from_numpy(np.random.default_rng(seed).normal(0, 3, (len(rows), VOCAB)).astype(np.float32))
    edited = logits.clone()
    apply_edits(edited, [state_of(*parts) for parts in rows])
    for index, (params, prompt, out) in enumerate(rows):
        expected = [
            edited_by_formula(value, token_id, params, prompt, out)
            for token_id, value in enumerate(logits[index].tolist())
        ]
        torch.testing.assert_close(edited[index], torch.tensor(expected), rtol=1e-5, atol=1e-5)


@settings(deadline=None)
@given(row)
def test_a_row_said_to_have_no_edits_is_left_alone(
    parts: tuple[SamplingParams, list[int], list[int]],
) -> None:
    state = state_of(*parts)
    logits = torch.linspace(-2, 2, VOCAB)[None].clone()
    before = logits.clone()
    apply_edits(logits, [state])
    assert has_edits(state) or torch.equal(logits, before)


def test_ids_outside_the_logits_are_passed_over() -> None:
    params = SamplingParams(logit_bias={VOCAB + 5: 9.0, 1: 2.0}, repetition_penalty=2.0, ignore_eos=True)
    state = SamplingState(params, np.asarray([0, VOCAB + 7], np.int32), 0, None, (2, VOCAB + 1))
    logits = torch.ones(1, VOCAB)
    apply_edits(logits, [state])
    assert logits[0, :4].tolist() == [0.5, 3.0, float("-inf"), 1.0]


@settings(deadline=None)
@given(st.lists(token, max_size=30), st.lists(st.integers(0, 400), max_size=300))
def test_counts_are_those_of_a_counter(prompt: list[int], generated: list[int]) -> None:
    counts = TokenCounts(np.asarray(prompt, np.int32))
    for token_id in generated:
        counts.add(token_id)
    expected = dict.fromkeys(prompt, 0) | dict(Counter(generated))
    assert dict(zip(counts.ids.tolist(), counts.counts.tolist(), strict=True)) == expected
    assert len(counts.ids) == len(expected)
