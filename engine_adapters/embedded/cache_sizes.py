"""How the memory of a model's cache is divided between KV and snapshots of state."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cache_core.device_tier import LayerLayout, block_bytes
from engine_adapters.embedded.state.layout import StateLayout

_STATE_SHARE = 0.2  # of a hybrid model's cache memory is for snapshots of state, the rest for KV
_FEWEST_SNAPSHOTS = 8
# Where no layer attends, pages hold zeros: they say which tokens a state stands behind, and snapshots get the memory.
_NO_KV = LayerLayout(kv_heads=1, key_dim=1, value_dim=1)
_MOST_PAGES_WITHOUT_KV = 1 << 16


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """What is kept on the device."""

    layouts: Sequence[LayerLayout]  # of the layers with pages, never none
    num_blocks: int
    snapshot_bytes: int
    state_share: float  # of all memory that caches this model, wherever it is, is for states


def cache_sizes(
    layouts: Sequence[LayerLayout],
    state: StateLayout | None,
    block_size: int,
    dtype: torch.dtype,
    budget: int,
    num_blocks: int | None,
) -> CacheSizes:
    """Divide `budget` bytes. `num_blocks` wins over it.

    Args:
        layouts: of the layers that attend.
        state: what hybrid and recurrent models keep beside KV.
    """
    if not layouts and state is not None:
        return _without_kv(state, block_size, dtype, budget, num_blocks)
    per_block = block_bytes(layouts, block_size, dtype)
    share = 0.0 if state is None else _STATE_SHARE
    blocks = num_blocks or max(1, int(budget * (1.0 - share)) // per_block)
    fewest = 0 if state is None else _FEWEST_SNAPSHOTS * state.row_bytes
    snapshot_bytes = max(int(blocks * per_block * share / (1.0 - share)), fewest)
    return CacheSizes(layouts, blocks, snapshot_bytes, share)


def _without_kv(
    state: StateLayout, block_size: int, dtype: torch.dtype, budget: int, num_blocks: int | None
) -> CacheSizes:
    per_block = block_bytes([_NO_KV], block_size, dtype)
    most = max(1, int(budget * (1.0 - _STATE_SHARE)) // per_block)
    blocks = num_blocks or min(most, _MOST_PAGES_WITHOUT_KV)
    pages = blocks * per_block
    snapshot_bytes = max(budget - pages, _FEWEST_SNAPSHOTS * state.row_bytes)
    return CacheSizes([_NO_KV], blocks, snapshot_bytes, snapshot_bytes / (snapshot_bytes + pages))
