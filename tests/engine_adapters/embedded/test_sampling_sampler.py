"""The sampler as the engine uses it: distributions, seeds, mixed batches, log probabilities, broken rows."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapters.base import SamplingParams
from engine_adapters.embedded.sampling import (
    SampledToken,
    Sampler,
    SamplingError,
    SamplingState,
    check_params,
)
from engine_adapters.errors import EngineFailureError, InvalidRequestError

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]
VOCAB = 300
EOS = (0,)
PROMPT = np.asarray([5, 6, 7, 5], np.int32)
GREEDY = SamplingParams(temperature=0.0)

VARIETY = (
    GREEDY,
    SamplingParams(seed=1),
    SamplingParams(seed=1, temperature=0.6, top_p=0.8),
    SamplingParams(seed=2, top_k=7, min_p=0.05),
    SamplingParams(seed=3, presence_penalty=1.0, frequency_penalty=0.5, repetition_penalty=1.4),
    SamplingParams(temperature=0.0, repetition_penalty=1.8, logit_bias={9: 3.0}),
    SamplingParams(seed=4, min_tokens=3, ignore_eos=True, top_p=0.95, logprobs=3),
    SamplingParams(temperature=0.0, logprobs=0),
)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Rows this small gain nothing from more threads, and lose much to them on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def new_state(params: SamplingParams, choice: int = 0) -> SamplingState:
    return SamplingState(params, PROMPT, choice, None, EOS)


def tokens(results: list[SampledToken | SamplingError]) -> list[int]:
    assert not [result for result in results if isinstance(result, SamplingError)]
    return [result.token_id for result in results if isinstance(result, SampledToken)]


def model_step(request: int, step: int) -> torch.Tensor:
    """The logits a model gives one request at one step, whoever else is in the batch."""
    rng = np.random.default_rng([request, step])
    return torch.from_numpy(rng.normal(0, 2, VOCAB).astype(np.float32))


def run_together(params: list[SamplingParams], steps: int, device: str = "cpu") -> list[list[int]]:
    states = [new_state(p) for p in params]
    made = [
        tokens(
            Sampler().sample(
                torch.stack([model_step(i, step) for i in range(len(params))]).to(device), states
            )
        )
        for step in range(steps)
    ]
    return [list(column) for column in zip(*made, strict=True)]


def chi_square(observed: np.ndarray, expected: np.ndarray) -> float:
    seen = expected > 0
    assert not observed[~seen].any()
    return float(((observed[seen] - expected[seen]) ** 2 / expected[seen]).sum())


@pytest.mark.parametrize(
    ("params", "exact"),
    [
        (SamplingParams(), [0.4, 0.3, 0.2, 0.1, 0.0]),
        (SamplingParams(temperature=0.5), [16 / 30, 9 / 30, 4 / 30, 1 / 30, 0.0]),
        (SamplingParams(top_k=2), [4 / 7, 3 / 7, 0.0, 0.0, 0.0]),
        (SamplingParams(top_p=0.8), [4 / 9, 3 / 9, 2 / 9, 0.0, 0.0]),
        (SamplingParams(min_p=0.6), [4 / 7, 3 / 7, 0.0, 0.0, 0.0]),
        (SamplingParams(logit_bias={3: float(np.log(2))}), [4 / 11, 3 / 11, 2 / 11, 2 / 11, 0.0]),
    ],
)
def test_frequencies_match_the_exact_probabilities(params: SamplingParams, exact: list[float]) -> None:
    draws, rows = 20_000, 500
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1, 0.0]).log().expand(rows, 5)
    seen = np.zeros(5)
    states = [new_state(dataclasses.replace(params, seed=11), choice) for choice in range(rows)]
    for _ in range(draws // rows):
        seen += np.bincount(tokens(Sampler().sample(logits, states)), minlength=5)
    assert (
        chi_square(seen, np.asarray(exact) * draws) < 23.5
    )  # 4 degrees of freedom, p = 1e-4; the seed is fixed


@pytest.mark.parametrize("device", DEVICES)
def test_a_request_with_a_seed_repeats_alone_and_in_every_batch(device: str) -> None:
    together = run_together(list(VARIETY), 12, device)
    for request, params in enumerate(VARIETY):
        state = new_state(params)
        alone = [
            tokens(Sampler().sample(model_step(request, s)[None].to(device), [state]))[0] for s in range(12)
        ]
        assert alone == together[request]


@settings(deadline=None)
@given(st.permutations(range(len(VARIETY))), st.integers(1, len(VARIETY)))
def test_order_and_company_of_a_batch_change_nothing(order: list[int], size: int) -> None:
    batch = order[:size]
    states = {i: new_state(VARIETY[i]) for i in batch}
    expected = run_together(list(VARIETY), 3)
    for step in range(3):
        rows = torch.stack([model_step(i, step) for i in batch])
        made = tokens(Sampler().sample(rows, [states[i] for i in batch]))
        assert made == [expected[i][step] for i in batch]


def test_choices_of_one_seed_differ_and_repeat() -> None:
    def streams() -> list[list[int]]:
        states = [new_state(SamplingParams(seed=5), choice) for choice in range(3)]
        made = [tokens(Sampler().sample(torch.zeros(3, VOCAB), states)) for _ in range(8)]
        return [list(column) for column in zip(*made, strict=True)]

    first = streams()
    assert first == streams()
    assert len({tuple(stream) for stream in first}) == 3


def test_without_a_seed_two_runs_differ() -> None:
    runs = [run_together([SamplingParams()], 12)[0] for _ in range(2)]
    assert runs[0] != runs[1]


@pytest.mark.parametrize("device", DEVICES)
def test_greedy_takes_the_lowest_id_of_equal_logits(device: str) -> None:
    logits = torch.zeros(4, 50_000, device=device)
    logits[1, [7, 40_000]] = 1.0
    logits[2, 49_999] = 1.0
    assert tokens(Sampler().sample(logits, [new_state(GREEDY) for _ in range(4)])) == [0, 7, 49_999, 0]


@pytest.mark.parametrize("temperature", [1e-300, 1e-9, 1e-4])
def test_a_temperature_near_zero_is_greedy_and_never_breaks(temperature: float) -> None:
    state = new_state(SamplingParams(temperature=temperature, seed=1))
    logits = torch.tensor([[1.0, 900.0, -3.0, 899.0]])
    assert tokens(Sampler().sample(logits, [state])) == [1]


def test_logits_are_left_unchanged() -> None:
    logits = torch.stack([model_step(i, 0) for i in range(len(VARIETY))])
    before = logits.clone()
    Sampler().sample(logits, [new_state(p) for p in VARIETY])
    assert torch.equal(logits, before)


def test_strides_and_gradients_of_the_logits_do_not_matter() -> None:
    rows = torch.stack([model_step(i, 0) for i in range(len(VARIETY))])
    strided = rows.t().contiguous().t().requires_grad_()
    made = tokens(Sampler().sample(strided, [new_state(p) for p in VARIETY]))
    assert made == tokens(Sampler().sample(rows, [new_state(p) for p in VARIETY]))


def test_sampling_advances_the_state_it_was_given() -> None:
    state = new_state(SamplingParams(temperature=0.0, frequency_penalty=1.0))
    logits = torch.tensor([[0.0, 2.5, 2.0, 1.0]])
    made = [tokens(Sampler().sample(logits, [state]))[0] for _ in range(4)]
    assert made == [1, 2, 1, 2]
    assert state.generated == 4


def test_no_end_token_before_min_tokens_nor_under_ignore_eos() -> None:
    logits = torch.tensor([[9.0, 1.0, 8.0, 0.0]])
    early = new_state(SamplingParams(temperature=0.0, min_tokens=2, stop_token_ids=(2,)))
    assert [tokens(Sampler().sample(logits, [early]))[0] for _ in range(3)] == [1, 1, 0]
    never = new_state(SamplingParams(temperature=0.0, ignore_eos=True, stop_token_ids=(2,)))
    assert [tokens(Sampler().sample(logits, [never]))[0] for _ in range(3)] == [2, 2, 2]


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "params", [GREEDY, SamplingParams(seed=1, top_p=0.9), SamplingParams(seed=1, logit_bias={1: 1.0})]
)
def test_a_poisoned_row_fails_alone(poison: float, params: SamplingParams) -> None:
    logits = torch.stack([model_step(i, 0) for i in range(3)])
    healthy = run_together([params] * 3, 1)
    logits[1, 17] = poison
    states = [new_state(params) for _ in range(3)]
    first, broken, last = Sampler().sample(logits, states)
    assert isinstance(broken, EngineFailureError)
    assert isinstance(first, SampledToken)
    assert isinstance(last, SampledToken)
    assert [state.generated for state in states] == [1, 0, 1]
    assert [first.token_id, last.token_id] == [healthy[0][0], healthy[2][0]]


def test_a_row_of_minus_infinity_and_a_row_banned_to_nothing_fail_alone() -> None:
    logits = torch.full((3, 4), float("-inf"))
    logits[1, 0] = 1.0
    logits[2, 1] = 1.0
    results = Sampler().sample(logits, [new_state(SamplingParams(ignore_eos=True, seed=1)) for _ in range(3)])
    assert [isinstance(result, SamplingError) for result in results] == [True, True, False]
    assert tokens(results[2:]) == [1]


def test_impossible_tokens_are_never_drawn() -> None:
    logits = torch.full((1, VOCAB), float("-inf"))
    logits[0, [3, 250]] = torch.tensor([1.0, 1.5])
    state = new_state(SamplingParams(seed=2, top_p=0.99, top_k=50))
    assert {tokens(Sampler().sample(logits, [state]))[0] for _ in range(60)} == {3, 250}


def test_logprobs_are_of_the_raw_logits_whatever_else_is_set() -> None:
    params = SamplingParams(
        temperature=0.3, seed=1, top_k=3, logit_bias={4: 50.0}, repetition_penalty=1.5, logprobs=4
    )
    logits = model_step(0, 0)[None]
    (result,) = Sampler().sample(logits, [new_state(params)])
    assert isinstance(result, SampledToken)
    exact = logits[0].double().log_softmax(0)
    assert result.token_id == 4
    assert result.logprob == pytest.approx(exact[4].item(), abs=1e-5)
    best = exact.argsort(descending=True)[:4].tolist()
    assert [token_id for token_id, _ in result.top] == best
    assert [value for _, value in result.top] == pytest.approx(exact[best].tolist(), abs=1e-5)


def test_logprobs_come_only_where_asked_for_and_as_many_as_asked_for() -> None:
    asked = [None, 0, 2, 5]
    states = [new_state(SamplingParams(temperature=0.0, logprobs=k)) for k in asked]
    results = Sampler().sample(torch.stack([model_step(i, 0) for i in range(4)]), states)
    got = [(r.logprob is not None, len(r.top)) for r in results if isinstance(r, SampledToken)]
    assert got == [(False, 0), (True, 0), (True, 2), (True, 5)]


def test_equal_alternatives_come_in_order_of_id_and_impossible_ones_not_at_all() -> None:
    logits = torch.tensor([[1.0, 2.0, 2.0, float("-inf")]])
    (result,) = Sampler().sample(logits, [new_state(SamplingParams(temperature=0.0, logprobs=4))])
    assert isinstance(result, SampledToken)
    assert [token_id for token_id, _ in result.top] == [1, 2, 0]


def test_a_batch_of_nobody_is_nothing() -> None:
    assert Sampler().sample(torch.zeros(0, VOCAB), []) == []


@pytest.mark.parametrize("token_id", [-1, VOCAB])
def test_token_ids_the_model_does_not_have_are_refused_by_name(token_id: int) -> None:
    wrong = {
        "logit_bias": SamplingParams(logit_bias={1: 0.5, token_id: 1.0}),
        "stop_token_ids": SamplingParams(stop_token_ids=(token_id,)),
    }
    for field, params in wrong.items():
        with pytest.raises(InvalidRequestError) as refused:
            check_params(params, VOCAB)
        assert refused.value.param == field
    check_params(SamplingParams(logit_bias={VOCAB - 1: 1.0}, stop_token_ids=(0,)), VOCAB)
