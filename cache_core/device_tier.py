"""The device tier: every layer's KV in paged memory on the accelerator, or in main memory where none is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from cache_core.block_rows import BlockRows
from cache_core.memory import aligned, anonymous_memory
from cache_core.native import SpanCopy


@dataclass(frozen=True, slots=True)
class LayerLayout:
    """Shape of one layer's KV. `key_dim` and `value_dim` are floats a head; they may differ."""

    kv_heads: int
    key_dim: int
    value_dim: int

    @property
    def width(self) -> int:
        """Elements one token takes in this layer, keys and values together."""
        return self.kv_heads * (self.key_dim + self.value_dim)


class DeviceTier:
    """KV bytes of `num_blocks` blocks for every layer.

    `keys[layer]` and `values[layer]` have the shape [kv_heads, slots, dim], where slot = block * block_size +
    offset in the block. Contents are undefined until written. Not locked: one thread writes at a time, and
    blocks that are moved between tiers are nobody else's until that is done. `span_copy` (see
    `cache_core.native`) makes moves in main memory faster.
    """

    def __init__(
        self,
        layers: Sequence[LayerLayout],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        span_copy: SpanCopy | None = None,
    ) -> None:
        if num_blocks < 1 or block_size < 1 or not layers:
            raise ValueError("a device tier needs at least one layer, one block and one token a block")
        self.layers = tuple(layers)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_slots = num_blocks * block_size
        self.dtype = dtype
        self.device = device
        shapes = [
            (layout.kv_heads, self.num_slots, dim)
            for layout in self.layers
            for dim in (layout.key_dim, layout.value_dim)
        ]
        tensors = _allocate(shapes, dtype, device)
        self.keys = tensors[0::2]
        self.values = tensors[1::2]
        self._rows = BlockRows(self.keys, self.values, block_size, span_copy)

    @property
    def bytes_per_block(self) -> int:
        return block_bytes(self.layers, self.block_size, self.dtype)

    def copy_blocks(self, source: NDArray[np.int32], target: NDArray[np.int32]) -> None:
        """Copy whole blocks in every layer: `target[i]` gets the bytes of `source[i]`.

        Raises:
            ValueError: lengths differ, or a block to write is also one to read.
        """
        if source.shape != target.shape:
            raise ValueError(f"{len(source)} source blocks for {len(target)} target blocks")
        if np.intersect1d(source, target).size:
            raise ValueError("a block cannot be read and written in the same copy")
        if not source.size:
            return
        read = self._index(source)
        write = self._index(target)
        for pool in (*self.keys, *self.values):
            blocks = self._by_block(pool)
            blocks[:, write] = blocks[:, read]

    def layer_bytes(self, layers: range) -> tuple[int, int]:
        """Where these layers lie in a block's row, as (first byte, one past the last)."""
        return self._rows.span(layers)

    def read_blocks(
        self,
        blocks: NDArray[np.int32],
        out: torch.Tensor,
        rows: NDArray[np.int32] | None = None,
        layers: range | None = None,
    ) -> None:
        """Gather blocks into rows in main memory: `out[rows[i]]` gets block `blocks[i]`.

        `out` is uint8 [rows, bytes_per_block]; in a row, layer follows layer, each its keys [kv_heads,
        block_size, key_dim], then its values. `rows` None: 0, 1, 2... `layers` None: all; else a range with
        step 1, and the rest of the row is left alone. On an accelerator the copy is queued on the current
        stream, and `out` must be pinned for that to be of use.

        Raises:
            ValueError: shapes or lengths do not fit.
        """
        self._rows.read(blocks, out, rows, layers)

    def write_blocks(
        self,
        blocks: NDArray[np.int32],
        data: torch.Tensor,
        rows: NDArray[np.int32] | None = None,
        layers: range | None = None,
    ) -> None:
        """Scatter rows into blocks, the way back of `read_blocks`: block `blocks[i]` gets `data[rows[i]]`.

        Raises:
            ValueError: shapes or lengths do not fit.
        """
        self._rows.write(blocks, data, rows, layers)

    def block_views(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one layer as [kv_heads, blocks, block_size, dim], without a copy."""
        return self._by_block(self.keys[layer]), self._by_block(self.values[layer])

    def _by_block(self, pool: torch.Tensor) -> torch.Tensor:
        return pool.view(pool.shape[0], self.num_blocks, self.block_size, pool.shape[2])

    def _index(self, blocks: NDArray[np.int32]) -> torch.Tensor:
        return torch.from_numpy(blocks.astype(np.int64)).to(self.device)


def block_bytes(layers: Sequence[LayerLayout], block_size: int, dtype: torch.dtype) -> int:
    """Bytes one block takes, over all layers."""
    return block_size * sum(layout.width for layout in layers) * dtype.itemsize


def _allocate(
    shapes: Sequence[tuple[int, int, int]], dtype: torch.dtype, device: torch.device
) -> list[torch.Tensor]:
    if device.type != "cpu":
        return [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
    sizes = [int(np.prod(shape)) * dtype.itemsize for shape in shapes]
    whole = torch.from_numpy(anonymous_memory(sum(map(aligned, sizes))))  # one mapping for all
    offset = 0
    tensors = []
    for shape, size in zip(shapes, sizes, strict=True):
        tensors.append(whole[offset : offset + size].view(dtype).view(shape))
        offset += aligned(size)
    return tensors
