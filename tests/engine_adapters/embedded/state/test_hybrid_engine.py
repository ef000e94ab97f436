"""Hybrid models in the engine: what is reused is where KV and state are both whole, and answers never change."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from engine_adapters.base import Retention
from engine_adapters.embedded.config import SchedulerLimits
from engine_adapters.embedded.state.auxiliary import AuxiliaryState
from tests.engine_adapters.embedded.engine_harness import BLOCK, Answer, Harness, random_tokens, running
from tests.tiny_hybrids import HYBRIDS, MENDED, RECURRENT, Stateful, save_tiny_hybrid
from tests.waiting import wait_until

TIE = 1e-3  # of the largest logit: tokens this close to the best one may be chosen in its place
EOS = 2
Tokens = NDArray[np.int32]


@cache
def reference(folder: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Stateful], Path]:
    @cache
    def make(arch: Stateful) -> Path:
        return save_tiny_hybrid(arch, tmp_path_factory.mktemp(arch))

    return make


@pytest.fixture(params=HYBRIDS)
def folder(request: pytest.FixtureRequest, folder_of: Callable[[Stateful], Path]) -> Path:
    return folder_of(request.param)


@pytest.fixture
def lfm2(folder_of: Callable[[Stateful], Path]) -> Path:
    return folder_of("lfm2")


@contextmanager
def leaving_nothing(
    folder: Path, *, blocks: int = 256, limits: SchedulerLimits | None = None
) -> Iterator[Harness]:
    """A harness in which no block and no state is held at the end by anybody."""
    with running(folder, blocks=blocks, limits=limits) as harness:
        yield harness
        wait_until(harness.idle, "the engine is idle")
        assert harness.states is not None
        assert harness.states.store.nbytes <= harness.runner.snapshot_bytes
    wait_until(no_state_is_left, "threads that end have let go of every state")


def no_state_is_left() -> bool:
    gc.collect()
    return not any(type(each) is AuxiliaryState for each in gc.get_objects())


def check(folder: Path, prompt: Tokens, answer: Answer, index: int = 0) -> None:
    """Every token of a greedy answer is the best one after all before it, by Transformers without a cache."""
    assert answer.error is None
    chosen = answer.tokens(index)
    assert chosen
    text = torch.tensor([*prompt.tolist(), *chosen])
    with torch.inference_mode():
        logits = reference(folder)(text[None], use_cache=False).logits[0, len(prompt) - 1 : -1].clone()
        logits[:, EOS] = logits.min()  # the harness asks for no end
    short = logits.max(dim=-1).values - logits[torch.arange(len(chosen)), torch.tensor(chosen)]
    assert float(short.max()) <= TIE * float(logits.abs().max())


def reuse(answer: Answer) -> int:
    assert answer.done is not None
    return answer.done.reused_tokens


def joined(*parts: Tokens) -> Tokens:
    return np.concatenate(parts)


def test_a_prompt_is_reused_up_to_its_last_boundary(folder: Path) -> None:
    prompt = random_tokens(101, 1)
    longer = joined(prompt, random_tokens(30, 2))
    with leaving_nothing(folder) as harness:
        answers = [harness.ask(each) for each in (prompt, prompt, longer)]
        assert [reuse(answer) for answer in answers] == [0, 96, 96]
        for text, answer in zip((prompt, prompt, longer), answers, strict=True):
            check(folder, text, answer)
        counters = harness.engine.counters()
        assert (counters["matched_tokens"], counters["reused_tokens"]) == (192, 192)


@pytest.mark.parametrize("arch", MENDED + RECURRENT)
def test_mended_and_recurrent_models_reuse_and_decode_together_like_others(
    arch: Stateful, folder_of: Callable[[Stateful], Path]
) -> None:
    shared = random_tokens(70, 3)
    prompts = [joined(shared, random_tokens(size, size)) for size in (40, 27, 10, 31)]
    folder = folder_of(arch)
    limits = SchedulerLimits(prefill_budget=50, prefill_budget_decoding=30)
    with leaving_nothing(folder, limits=limits) as harness:
        assert [reuse(harness.ask(prompt)) for prompt in prompts[:3]] == [0, 0, 64]
        pending = [harness.submit(prompt, max_tokens=12) for prompt in prompts]
        for prompt, each in zip(prompts, pending, strict=True):
            check(folder, prompt, each.result())
            assert reuse(each.result()) >= 64


def test_a_prompt_of_whole_blocks_leaves_its_last_one_to_compute(lfm2: Path) -> None:
    prompt = random_tokens(96, 1)
    with leaving_nothing(lfm2) as harness:
        assert [reuse(harness.ask(prompt)) for _ in range(2)] == [0, 80]


def test_the_second_branch_leaves_a_snapshot_for_the_third(folder: Path) -> None:
    shared = random_tokens(70, 3)
    prompts = [joined(shared, random_tokens(40, seed)) for seed in (4, 5, 6)]
    with leaving_nothing(folder) as harness:
        answers = [harness.ask(prompt) for prompt in prompts]
        assert [reuse(answer) for answer in answers] == [0, 0, 64]
        for prompt, answer in zip(prompts, answers, strict=True):
            check(folder, prompt, answer)
        assert harness.engine.counters()["matched_tokens"] == 128, "what the index had, state or not"
        assert [answer.done.matched_tokens for answer in answers if answer.done] == [0, 64, 64]


def test_kv_without_its_state_is_not_reused(folder: Path) -> None:
    prompt, tail = random_tokens(90, 7), random_tokens(50, 8)
    with leaving_nothing(folder) as harness:
        assert harness.states is not None
        harness.ask(prompt)
        harness.ask(joined(prompt, tail))
        snapshots = harness.states.store
        deepest = snapshots.find(joined(prompt, tail), "default", 128)
        assert deepest is not None
        assert deepest.length == 128
        snapshots.flush()
        again = harness.ask(joined(prompt, tail))
        assert reuse(again) == 0
        check(folder, joined(prompt, tail), again)
        assert reuse(harness.ask(joined(prompt, tail))) == 128, "and it was kept again on the way"


def test_where_the_deepest_state_went_a_shallower_one_serves(folder: Path) -> None:
    prompt, tail = random_tokens(90, 9), random_tokens(50, 10)
    with leaving_nothing(folder) as harness:
        assert harness.states is not None
        store = harness.states.store
        store._room = 2
        harness.ask(prompt)  # a snapshot at 80
        harness.ask(joined(prompt, tail))  # and one at 128
        assert store.find(prompt, "default", 80) is not None
        harness.ask(random_tokens(40, 11))  # takes the room of the one at 128
        assert store.evicted == 1
        again = harness.ask(joined(prompt, tail))
        assert reuse(again) == 80
        check(folder, joined(prompt, tail), again)


def test_a_state_without_its_kv_is_not_used(lfm2: Path) -> None:
    prompt = random_tokens(90, 12)
    with leaving_nothing(lfm2) as harness:
        harness.ask(prompt)
        harness.cache.flush()
        again = harness.ask(prompt)
        assert reuse(again) == 0
        check(lfm2, prompt, again)


@pytest.mark.parametrize(("wish", "reused"), [(None, 0), (Retention(pin_s=600), 80)])
def test_a_prefix_that_is_kept_keeps_its_state(lfm2: Path, wish: Retention | None, reused: int) -> None:
    prompt = random_tokens(90, 13)
    with leaving_nothing(lfm2) as harness:
        assert harness.states is not None
        harness.states.store._room = 4
        harness.submit(prompt, retention=wish).result()
        for seed in range(100, 106):
            harness.ask(random_tokens(40, seed))
        assert reuse(harness.ask(prompt)) == reused


def test_scopes_share_neither_kv_nor_state(lfm2: Path) -> None:
    prompt = random_tokens(60, 13)
    with leaving_nothing(lfm2) as harness:
        assert [reuse(harness.submit(prompt, scope=each).result()) for each in "abab"] == [0, 0, 48, 48]


def test_many_at_once_answer_as_alone(folder: Path) -> None:
    shared = [random_tokens(64, 14), random_tokens(37, 15), random_tokens(0, 0)]
    prompts = [joined(shared[i % 3], random_tokens(5 + 7 * i, 20 + i)) for i in range(12)]
    limits = SchedulerLimits(max_running=6, prefill_budget=100, prefill_budget_decoding=40)
    with leaving_nothing(folder, limits=limits) as harness:
        for _ in range(2):
            pending = [harness.submit(prompt, max_tokens=6 + i) for i, prompt in enumerate(prompts)]
            for prompt, each in zip(prompts, pending, strict=True):
                check(folder, prompt, each.result())


def test_prompts_that_come_together_compute_their_beginning_once(folder: Path) -> None:
    shared = random_tokens(96, 17)
    prompts = [joined(shared, random_tokens(20, seed)) for seed in (18, 19, 20)] + [shared[:90]]
    with leaving_nothing(folder, limits=SchedulerLimits(prefill_budget=48)) as harness:
        go_on = harness.hold()
        first = harness.submit(random_tokens(5, 21), max_tokens=1)
        pending = [harness.submit(prompt, max_tokens=4) for prompt in prompts]
        go_on.set()
        first.result()
        answers = [each.result() for each in pending]
        for prompt, answer in zip(prompts, answers, strict=True):
            check(folder, prompt, answer)
        prefilled = harness.runner.computed - 5 - 4 * 3
        assert prefilled == sum(
            len(prompt) - reuse(answer) for prompt, answer in zip(prompts, answers, strict=True)
        )
        assert prefilled <= 116 + 2 * 20 + 90


def test_choices_fork_off_the_prompts_state(folder: Path) -> None:
    prompt = random_tokens(53, 16)
    with leaving_nothing(folder) as harness:
        answer = harness.ask(prompt, n=3)
        for index in range(3):
            check(folder, prompt, answer, index)
        sampled = harness.ask(prompt, n=4, temperature=1.0, seed=1, max_tokens=12)
        assert len({tuple(sampled.tokens(index)) for index in range(4)}) > 1


def test_who_is_preempted_goes_on_from_a_snapshot_with_the_same_answer(folder: Path) -> None:
    prompts = [random_tokens(45, 30 + i) for i in range(4)]
    with leaving_nothing(folder, blocks=18) as harness:
        go_on = harness.hold()
        pending = [harness.submit(prompt, max_tokens=40) for prompt in prompts]
        go_on.set()
        for prompt, each in zip(prompts, pending, strict=True):
            answer = each.result()
            assert len(answer.tokens()) == 40
            check(folder, prompt, answer)
        assert harness.engine.counters()["preemptions"] > 0


@pytest.mark.parametrize("step", [1, 2, 4])
def test_cancelled_in_any_state_nothing_is_held(lfm2: Path, step: int) -> None:
    prompts = [random_tokens(120, 40 + i) for i in range(5)]
    limits = SchedulerLimits(max_running=3, prefill_budget=50)
    with leaving_nothing(lfm2, limits=limits) as harness:
        pending = [harness.submit(prompt, max_tokens=200) for prompt in prompts]

        def cancel(_: object) -> None:
            if len(harness.runner.steps) == step:
                for each in pending[1:]:
                    harness.engine.cancel(each.id)

        harness.runner.before_step = cancel
        if len(harness.runner.steps) > step:
            for each in pending[1:]:
                harness.engine.cancel(each.id)
        check(lfm2, prompts[0], pending[0].result())


def test_when_a_step_fails_the_next_request_starts_anew(lfm2: Path) -> None:
    prompt = random_tokens(80, 50)
    with running(lfm2) as harness:  # the log keeps what the failed step held

        def explode(_: object) -> None:
            harness.runner.before_step = None
            raise RuntimeError("boom")

        harness.runner.before_step = explode
        assert harness.ask(prompt).error is not None
        healthy = harness.ask(prompt)
        assert reuse(healthy) == 0
        check(lfm2, prompt, healthy)


def test_a_model_without_states_has_no_snapshots(tiny_model: Callable[[str], Path]) -> None:
    with running(tiny_model("llama")) as harness:
        assert harness.states is None
        assert harness.runner.snapshot_bytes == 0
        assert "state_snapshots" not in harness.engine.counters()


def test_the_blocks_of_a_recomputed_gap_are_its_own(lfm2: Path) -> None:
    prompt = random_tokens(100, 60)
    with leaving_nothing(lfm2) as harness:
        assert harness.states is not None
        harness.ask(prompt)
        harness.states.store.flush()
        before = [tensor.clone() for tensor in harness.runner.kv.keys]
        shared = harness.cache.acquire(prompt)
        slots = (shared.blocks[:, None] * BLOCK + np.arange(BLOCK)).reshape(-1)
        assert reuse(harness.ask(prompt)) == 0
        for was, now in zip(before, harness.runner.kv.keys, strict=True):
            assert torch.equal(was[:, slots], now[:, slots])
        shared.release()
