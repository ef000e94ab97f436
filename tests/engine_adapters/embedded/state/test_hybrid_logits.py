"""A hybrid model's logits are Transformers' own, wherever its prompt is cut and whatever it goes on from."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from engine_adapters.embedded.model_runner import ModelRunner, Segment
from engine_adapters.embedded.state.auxiliary import AuxiliaryState, Snapshot
from tests.engine_adapters.embedded.engine_harness import BLOCK, random_tokens
from tests.tiny_hybrids import HYBRIDS, MENDED, RECURRENT, save_tiny_hybrid

TOLERANCE = 1e-4
LOOSER = {"zamba": 3e-4}  # whose own logits in float32 are 8e-5 off those in float64
LENGTH = 150


class HybridCase:
    """One model both ways."""

    def __init__(self, folder: Path, tolerance: float) -> None:
        self.tolerance = tolerance
        self.reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.runner = ModelRunner.load(folder, device="cpu", num_blocks=64, block_size=BLOCK)
        self.tokens = random_tokens(LENGTH, 1)
        self.expected = self.uncached(self.tokens)

    def uncached(self, tokens: np.ndarray) -> torch.Tensor:
        ids = torch.from_numpy(tokens.astype(np.int64))[None]
        with torch.inference_mode():
            return self.reference(ids, use_cache=False).logits[0]

    def prefill(
        self, tokens: np.ndarray, blocks: np.ndarray, state: AuxiliaryState, past: int = 0
    ) -> torch.Tensor:
        return self.runner.forward_all(Segment(tokens[past:], past, blocks, sample=True, state=state))


@pytest.fixture(params=HYBRIDS + MENDED + RECURRENT, scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HybridCase:
    folder = save_tiny_hybrid(request.param, tmp_path_factory.mktemp(request.param))
    return HybridCase(folder, LOOSER.get(request.param, TOLERANCE))


def difference(ours: torch.Tensor, reference: torch.Tensor) -> float:
    assert ours.shape == reference.shape
    return float((ours - reference).abs().max() / reference.abs().max())


def blocks_at(first: int) -> np.ndarray:
    return np.arange(first, first + 10, dtype=np.int32)[::-1].copy()


def test_a_snapshot_at_every_block_boundary_gives_the_uncached_logits(case: HybridCase) -> None:
    state, blocks = AuxiliaryState(), blocks_at(0)
    snapshots: list[Snapshot] = []
    for end in range(BLOCK, LENGTH, BLOCK):
        case.prefill(case.tokens[:end], blocks, state, past=end - BLOCK)
        snapshots.append(state.snapshot())
    assert [each.length for each in snapshots] == list(range(16, 145, 16))
    for snapshot in snapshots:
        shared = snapshot.length // BLOCK
        table = np.concatenate([blocks[:shared], np.arange(20, 30, dtype=np.int32)])
        logits = case.prefill(case.tokens, table, AuxiliaryState(snapshot), past=snapshot.length)
        assert difference(logits, case.expected[snapshot.length :]) <= case.tolerance


@pytest.mark.parametrize("sizes", [(150,), (1, 149), (2, 148), (3, 1, 1, 64, 81), (32, 32, 13, 1, 64, 8)])
def test_chunks_give_what_one_pass_gives(case: HybridCase, sizes: tuple[int, ...]) -> None:
    state, past, parts = AuxiliaryState(), 0, []
    for size in sizes:
        parts.append(case.prefill(case.tokens[: past + size], blocks_at(0), state, past))
        past += size
    assert difference(torch.cat(parts), case.expected) <= case.tolerance


def test_prompts_and_decodes_mix_in_one_step(case: HybridCase) -> None:
    texts = [case.tokens, random_tokens(77, 2), random_tokens(40, 3), random_tokens(30, 4)]
    pasts = [149, 76, 0, 29]
    states = [AuxiliaryState() for _ in texts]
    tables = [blocks_at(10 * i) for i in range(4)]
    for text, past, table, state in zip(texts, pasts, tables, states, strict=True):
        if past:
            case.prefill(text[:past], table, state)
    logits = case.runner.forward(
        [
            Segment(text[past:], past, table, sample=i != 1, state=state)
            for i, (text, past, table, state) in enumerate(zip(texts, pasts, tables, states, strict=True))
        ]
    )
    expected = torch.stack([case.uncached(texts[i])[-1] for i in (0, 2, 3)])
    assert difference(logits, expected) <= case.tolerance
    assert [state.length for state in states] == [150, 77, 40, 30]


def test_sequences_join_and_leave_those_that_decode_together(case: HybridCase) -> None:
    texts = [case.tokens, random_tokens(90, 5), random_tokens(60, 6)]
    at, states = [40, 33, 21], [AuxiliaryState() for _ in texts]
    tables = [blocks_at(10 * i) for i in range(3)]
    for text, past, table, state in zip(texts, at, tables, states, strict=True):
        case.prefill(text[:past], table, state)
    expected = [case.uncached(text) for text in texts]
    for together in [(0, 1, 2), (0, 1, 2), (2, 0), (2, 0), (1,), (2, 1, 0), (1, 0), (0,), (0, 1, 2)]:
        segments = [
            Segment(texts[i][at[i] : at[i] + 1], at[i], tables[i], sample=True, state=states[i])
            for i in together
        ]
        logits = case.runner.forward(segments)
        assert difference(logits, torch.stack([expected[i][at[i]] for i in together])) <= case.tolerance
        for i in together:
            at[i] += 1


def test_a_clone_goes_its_own_way(case: HybridCase) -> None:
    state, blocks = AuxiliaryState(), blocks_at(0)
    case.prefill(case.tokens[:48], blocks, state)
    other = np.concatenate([case.tokens[:48], random_tokens(20, 9)])
    clone, table = state.clone(), np.concatenate([blocks[:3], blocks_at(20)])
    theirs = case.prefill(other, table, clone, past=48)
    ours = case.prefill(case.tokens, blocks, state, past=48)
    assert difference(theirs, case.uncached(other)[48:]) <= case.tolerance
    assert difference(ours, case.expected[48:]) <= case.tolerance


def test_a_state_of_other_tokens_is_refused(case: HybridCase) -> None:
    with pytest.raises(ValueError, match="a state of 0 tokens cannot go on behind 16"):
        case.prefill(case.tokens[:20], blocks_at(0), AuxiliaryState(), past=16)


def test_kv_and_snapshots_share_the_bytes_that_are_given(tmp_path: Path) -> None:
    runner = ModelRunner.load(save_tiny_hybrid("lfm2", tmp_path), device="cpu", kv_bytes=10 << 20)
    assert runner.state is not None
    kv = runner.num_blocks * runner.kv.bytes_per_block
    assert len(runner.kv.layers) == 2, "only layers that attend have KV"
    assert kv <= 8 << 20
    assert kv + runner.snapshot_bytes <= 10 << 20
    assert runner.snapshot_bytes >= (2 << 20) - runner.kv.bytes_per_block
