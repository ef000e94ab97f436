"""What happens in a step to the choices of a request: they count, fail and end together or apart."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

from engine_adapters.embedded.model_runner import Segment
from engine_adapters.embedded.sampling import GrammarLimitError, SamplingError
from engine_adapters.errors import EngineFailureError, InvalidRequestError
from tests.engine_adapters.embedded.engine_harness import Harness, random_tokens, running


@pytest.fixture
def harness(tiny_model: Callable[[str], Path]) -> Iterator[Harness]:
    with running(tiny_model("llama")) as made:
        yield made


def break_one_forward(harness: Harness) -> None:
    """The next step's logits are not finite; those after it are right again."""
    runner = harness.runner._runner
    forward = runner.forward

    def broken(segments: Sequence[Segment]) -> torch.Tensor:
        runner.forward = forward  # type: ignore[method-assign]
        return forward(segments) * float("nan")

    runner.forward = broken  # type: ignore[method-assign]


@pytest.mark.parametrize("choices", [1, 3])
def test_logits_that_are_not_finite_fail_the_request_once_and_not_the_engine(
    harness: Harness, choices: int
) -> None:
    break_one_forward(harness)
    answer = harness.ask(random_tokens(20, 1), n=choices)
    assert isinstance(answer.error, EngineFailureError)
    assert harness.ask(random_tokens(20, 2)).done is not None
    assert harness.engine.counters()["failed"] == 1
    assert harness.idle()


def test_a_batch_that_cannot_be_sampled_is_sampled_row_by_row(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = harness.ask(random_tokens(20, 1), n=2, seed=1, temperature=1.0)

    def explode(*_: object) -> None:
        monkeypatch.undo()
        raise RuntimeError("boom")

    monkeypatch.setattr(harness.engine._loop._sampler, "sample", explode)
    answer = harness.ask(random_tokens(20, 1), n=2, seed=1, temperature=1.0)
    assert [answer.tokens(i) for i in range(2)] == [expected.tokens(i) for i in range(2)]
    assert harness.idle()


def test_a_sampler_that_breaks_fails_the_request_and_not_the_engine(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(harness.engine._loop._sampler, "sample", explode)
    assert isinstance(harness.ask(random_tokens(20, 1), n=2).error, EngineFailureError)
    monkeypatch.undo()
    assert harness.ask(random_tokens(20, 2)).done is not None
    assert harness.idle()


@pytest.mark.parametrize("blocks", [10, 64])
def test_choices_reuse_what_their_request_found_and_not_what_it_computed(
    tiny_model: Callable[[str], Path], blocks: int
) -> None:
    """With 10 blocks most choices queue up behind the others, and find the prompt in the cache by then."""
    prompt = random_tokens(60, 33)
    with running(tiny_model("llama"), blocks=blocks) as harness:
        cold = harness.ask(prompt, n=6, temperature=1.0, seed=1, max_tokens=40)
        assert cold.done is not None
        assert cold.done.reused_tokens == 0
        harness.cache.flush()
        harness.ask(prompt[:40], max_tokens=1)
        partial = harness.ask(prompt, n=6, temperature=1.0, seed=1, max_tokens=2)
        assert partial.done is not None
        assert partial.done.reused_tokens == 32
        counters = harness.engine.counters()
        assert counters["reused_tokens"] == 32
        assert counters["recomputed_tokens"] == 60 + 40 + 28


def test_a_schema_that_is_too_complex_on_the_way_is_the_requests_fault(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(_: object, states: Sequence[object]) -> list[SamplingError]:
        return [GrammarLimitError("a limit")] * len(states)

    monkeypatch.setattr(harness.engine._loop._sampler, "sample", give_up)
    answer = harness.ask(random_tokens(20, 1), n=3)
    assert isinstance(answer.error, InvalidRequestError)
    assert answer.error.param == "response_format"
    assert harness.idle()


def test_what_an_accelerator_fails_to_compute_later_is_found_by_nobody(harness: Harness) -> None:
    runner, prompt = harness.runner._runner, random_tokens(40, 1)

    def fail() -> None:
        del runner.synchronize  # type: ignore[method-assign]
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    runner.synchronize = fail  # type: ignore[method-assign]
    assert isinstance(harness.ask(prompt).error, EngineFailureError)
    assert harness.cache.match(prompt) == 0
    assert harness.ask(prompt).done is not None
    assert harness.cache.match(prompt) == 32
    assert harness.idle()


def test_the_measured_rate_counts_until_an_accelerator_is_done(harness: Harness) -> None:
    runner, rate = harness.runner._runner, harness.engine._loop.scheduler.rate
    before = rate.seconds(1000)
    runner.synchronize = lambda: time.sleep(0.2)  # type: ignore[method-assign]
    harness.ask(random_tokens(40, 1), max_tokens=1)
    assert rate.seconds(1000) > before, "40 tokens took 0.2 s at least"
