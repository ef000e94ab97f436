"""KV and state that went to disk and came back in a fresh process give the uncached logits, at every boundary."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from cache_core.block_header import BlockHeader
from cache_core.state_groups import StateGroup
from cache_core.tiers.disk import DiskOptions, DiskTier
from engine_adapters.embedded.model_runner import ModelRunner, Segment
from engine_adapters.embedded.state.auxiliary import AuxiliaryState, Snapshot
from engine_adapters.embedded.state.state_rows import StateRows
from tests.engine_adapters.embedded.engine_harness import BLOCK, random_tokens
from tests.tiny_hybrids import HYBRIDS, save_tiny_hybrid

TOKENS = random_tokens(150, 1)
ENDS = range(BLOCK, 150, BLOCK)
TOLERANCE = 1e-4


@dataclass
class Process:
    """A model that was just loaded, with nothing cached."""

    runner: ModelRunner
    rows: StateRows

    @classmethod
    def started(cls, folder: Path) -> "Process":
        runner = ModelRunner.load(folder, device="cpu", num_blocks=32, block_size=BLOCK)
        assert runner.state is not None
        return cls(runner, StateRows(runner.state, runner.device))

    def prefill(self, past: int, end: int, state: AuxiliaryState) -> torch.Tensor:
        blocks = np.arange(10, dtype=np.int32)[::-1].copy()
        return self.runner.forward_all(Segment(TOKENS[past:end], past, blocks, sample=True, state=state))


@pytest.fixture(params=HYBRIDS, scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_hybrid(request.param, tmp_path_factory.mktemp(request.param))


def headers(group: StateGroup) -> list[BlockHeader]:
    """One for each boundary; the hashes only have to differ."""
    return [
        BlockHeader(
            bytes(32), (end - BLOCK).to_bytes(32, "big"), end.to_bytes(32, "big"), b"ids.", int(group)
        )
        for end in ENDS
    ]


def opened(folder: Path) -> DiskTier:
    return DiskTier(DiskOptions(folder, 64 << 20))


def test_from_every_boundary_a_fresh_process_goes_on_with_the_uncached_logits(
    folder: Path, tmp_path: Path
) -> None:
    first, state = Process.started(folder), AuxiliaryState()
    disk = opened(tmp_path)
    rows = np.full((len(ENDS), first.rows.row_bytes), 255, dtype=np.uint8)
    for row, end in zip(rows, ENDS, strict=True):
        first.prefill(end - BLOCK, end, state)
        first.rows.read(state.snapshot(), torch.from_numpy(row))
    blocks = np.zeros((len(ENDS), first.runner.kv.bytes_per_block), dtype=np.uint8)
    first.runner.kv.read_blocks(np.arange(9, 0, -1, dtype=np.int32), torch.from_numpy(blocks))
    assert disk.put(headers(StateGroup.RECURRENT), rows).all()
    assert disk.put(headers(StateGroup.ATTENTION), blocks).all()
    disk.close()

    second, disk = Process.started(folder), opened(tmp_path)
    rows, blocks = np.zeros_like(rows), np.zeros_like(blocks)
    assert disk.get(headers(StateGroup.RECURRENT), rows).all()
    assert disk.get(headers(StateGroup.ATTENTION), blocks).all()
    disk.close()
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        expected = reference(torch.from_numpy(TOKENS.astype(np.int64))[None], use_cache=False).logits[0]
    for row, end in zip(rows, ENDS, strict=True):
        snapshot = second.rows.empty(end)
        second.rows.write(snapshot, torch.from_numpy(row))
        second.runner.kv.write_blocks(np.arange(9, 0, -1, dtype=np.int32), torch.from_numpy(blocks))
        logits = second.prefill(end, len(TOKENS), AuxiliaryState(snapshot))
        assert float((logits - expected[end:]).abs().max() / expected.abs().max()) <= TOLERANCE


def test_a_row_comes_back_bit_for_bit(folder: Path) -> None:
    process, state = Process.started(folder), AuxiliaryState()
    process.prefill(0, 40, state)
    snapshot, row = state.snapshot(), torch.full((process.rows.row_bytes,), 7, dtype=torch.uint8)
    process.rows.read(snapshot, row)
    back = process.rows.empty(snapshot.length)
    process.rows.write(back, row)
    assert process.rows.fits(back)
    assert process.rows.row_bytes % 4096 == 0
    for was, now in zip(snapshot.tensors, back.tensors, strict=True):
        assert torch.equal(was, now)
    filled = sum(tensor.nbytes for tensor in snapshot.tensors)
    assert not row[filled:].any(), "nothing of what was in the row before goes to disk"


def test_a_snapshot_of_another_shape_does_not_fit(folder: Path) -> None:
    process, state = Process.started(folder), AuxiliaryState()
    process.prefill(0, 20, state)
    snapshot = state.snapshot()
    assert process.rows.fits(snapshot)
    longer = tuple(torch.cat([tensor, tensor]) for tensor in snapshot.tensors)
    assert not process.rows.fits(Snapshot(20, longer))
    assert not process.rows.fits(replace(snapshot, tensors=snapshot.tensors[:-1]))


def test_what_a_row_means_depends_on_the_layout(folder: Path) -> None:
    layout = Process.started(folder).runner.state
    assert layout is not None
    assert replace(layout, parts=layout.parts[1:]).described != layout.described
    assert layout.row_bytes == sum(part.nbytes for part in layout.parts)
