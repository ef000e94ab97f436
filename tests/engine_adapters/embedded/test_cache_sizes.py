"""Memory goes to KV and to snapshots of state, to each as a model needs it."""

from pathlib import Path

import pytest
import torch

from cache_core.device_tier import LayerLayout
from engine_adapters.embedded.cache_sizes import cache_sizes
from engine_adapters.embedded.model_runner import ModelRunner
from engine_adapters.embedded.state.cache_layers import LayerKind
from engine_adapters.embedded.state.layout import StateLayout, StatePart
from tests.tiny_hybrids import save_tiny_hybrid

MIB = 1 << 20
KV = LayerLayout(kv_heads=2, key_dim=16, value_dim=16)
BLOCK_BYTES = 2 * 32 * 16 * 4
STATE = StateLayout((LayerKind(False, 1),), (StatePart(0, "recurrent", 0, (1, 8, 16, 16), torch.float32),))


def test_all_is_for_kv_where_there_is_no_state() -> None:
    sizes = cache_sizes([KV], None, 16, torch.float32, 10 * MIB, None)
    assert (sizes.num_blocks, sizes.snapshot_bytes, sizes.state_share) == (10 * MIB // BLOCK_BYTES, 0, 0.0)


def test_a_fifth_is_for_states_beside_kv() -> None:
    sizes = cache_sizes([KV], STATE, 16, torch.float32, 10 * MIB, None)
    assert sizes.num_blocks == 8 * MIB // BLOCK_BYTES
    assert sizes.snapshot_bytes == pytest.approx(2 * MIB, rel=1e-3)
    assert sizes.state_share == 0.2


def test_states_without_kv_get_all_but_the_pages() -> None:
    sizes = cache_sizes([], STATE, 16, torch.float32, 100 * MIB, None)
    assert len(sizes.layouts) == 1
    assert sizes.num_blocks * 16 == MIB, "tokens, whatever the memory"
    assert sizes.snapshot_bytes == 92 * MIB
    assert sizes.state_share == 0.92


@pytest.mark.parametrize("layouts", [[KV], []])
def test_a_number_of_blocks_wins_and_leaves_room_for_a_few_states(layouts: list[LayerLayout]) -> None:
    sizes = cache_sizes(layouts, STATE, 16, torch.float32, 1, 5)
    assert sizes.num_blocks == 5
    assert sizes.snapshot_bytes == 8 * STATE.row_bytes


def test_a_model_without_kv_is_given_its_memory_that_way(tmp_path: Path) -> None:
    runner = ModelRunner.load(save_tiny_hybrid("mamba2", tmp_path), device="cpu", kv_bytes=64 * MIB)
    assert runner.num_blocks == 1 << 16
    assert runner.snapshot_bytes == 56 * MIB
    assert runner.state_share == 56 / 64
