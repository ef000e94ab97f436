"""Blocks of every layer are copied whole, and nothing else changes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cache_core.device_tier import DeviceTier, LayerLayout, block_bytes

LAYERS = [LayerLayout(kv_heads=2, key_dim=8, value_dim=8), LayerLayout(kv_heads=1, key_dim=12, value_dim=4)]
NUM_BLOCKS, BLOCK = 12, 4


def filled_tier(dtype: torch.dtype = torch.float32) -> DeviceTier:
    tier = DeviceTier(LAYERS, NUM_BLOCKS, BLOCK, dtype, torch.device("cpu"))
    for pool in (*tier.keys, *tier.values):
        pool.copy_(torch.randn(pool.shape))
    return tier


def test_each_layer_has_its_own_shape() -> None:
    tier = filled_tier()
    assert [tuple(keys.shape) for keys in tier.keys] == [(2, 48, 8), (1, 48, 12)]
    assert [tuple(values.shape) for values in tier.values] == [(2, 48, 8), (1, 48, 4)]


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_a_block_takes_the_bytes_of_its_tensors(dtype: torch.dtype, size: int) -> None:
    tier = filled_tier(dtype)
    total = sum(pool.numel() for pool in (*tier.keys, *tier.values)) * size
    assert tier.bytes_per_block * NUM_BLOCKS == total
    assert block_bytes(LAYERS, BLOCK, dtype) == tier.bytes_per_block


def test_tensors_do_not_overlap() -> None:
    tier = filled_tier()
    pools = [*tier.keys, *tier.values]
    for i, pool in enumerate(pools):
        pool.fill_(i)
    assert [set(pool.unique().tolist()) for pool in pools] == [{float(i)} for i in range(len(pools))]


def test_a_blocks_view_is_its_slots() -> None:
    tier = filled_tier()
    keys, values = tier.block_views(1)
    assert torch.equal(keys[:, 5], tier.keys[1][:, 20:24])
    assert torch.equal(values[:, 11], tier.values[1][:, 44:48])


@given(st.permutations(range(NUM_BLOCKS)), st.integers(0, NUM_BLOCKS // 2))
def test_a_copy_changes_the_target_blocks_alone(order: list[int], count: int) -> None:
    tier = filled_tier()
    before = [pool.clone().view(pool.shape[0], NUM_BLOCKS, -1) for pool in (*tier.keys, *tier.values)]
    source = np.array(order[:count], dtype=np.int32)
    target = np.array(order[count : 2 * count], dtype=np.int32)
    tier.copy_blocks(source, target)
    for old, pool in zip(before, (*tier.keys, *tier.values), strict=True):
        new = pool.view(pool.shape[0], NUM_BLOCKS, -1)
        origin = np.arange(NUM_BLOCKS)
        origin[target] = source
        assert torch.equal(new, old[:, origin])


def test_a_block_is_not_read_and_written_at_once() -> None:
    with pytest.raises(ValueError, match="read and written"):
        filled_tier().copy_blocks(np.array([0, 1], dtype=np.int32), np.array([1, 2], dtype=np.int32))


def test_every_source_has_a_target() -> None:
    with pytest.raises(ValueError, match="2 source blocks for 1 target"):
        filled_tier().copy_blocks(np.array([0, 1], dtype=np.int32), np.array([2], dtype=np.int32))


@pytest.mark.parametrize(("layers", "blocks", "size"), [([], 1, 1), (LAYERS, 0, 1), (LAYERS, 1, 0)])
def test_an_empty_tier_is_refused(layers: list[LayerLayout], blocks: int, size: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        DeviceTier(layers, blocks, size, torch.float32, torch.device("cpu"))
