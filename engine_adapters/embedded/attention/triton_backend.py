"""Decode over pages by Triton kernels; prefill goes the reference's way."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import triton
import triton.language as tl

from cache_core.device_tier import DeviceTier
from engine_adapters.embedded.attention.interface import LayerCall
from engine_adapters.embedded.attention.spans import MAX_SHARING_TOKENS
from engine_adapters.embedded.attention.step import AttentionBackend, StepLayout
from engine_adapters.embedded.attention.torch_backend import TorchBackend, TorchPlan
from engine_adapters.embedded.attention.triton_kernels import attend_parts, merge_parts
from engine_adapters.embedded.attention.triton_work import (
    KEY_TILE,
    KeyRange,
    cut,
    key_ranges,
    page_tables,
)

MAX_GROUP = 128  # query heads a key head; more do not fit one tile
_TILES = (16, 64)  # rows of a tile: one sequence's decode, and what shares keys or is a short prefill
_MIN_KEYS = 256  # a shorter range is not worth a merge
_PROGRAMS_A_PROCESSOR = 4
_NO_WINDOW = 1 << 30  # tokens

_TYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


@dataclass(frozen=True, slots=True)
class _DeviceWork:
    """See `triton_work.Work`; on the device, with the tile it was cut for."""

    tile: int
    items: torch.Tensor
    entries: torch.Tensor
    merges: torch.Tensor


@dataclass(frozen=True, slots=True)
class TritonPlan:
    long: TorchPlan | None  # the reference's share: segments that prefill many tokens
    slots: torch.Tensor  # [T] where the new tokens' KV goes
    positions: np.ndarray[tuple[int], np.dtype[np.int64]]
    tables: torch.Tensor | None  # None: all segments are long
    ranges: Sequence[KeyRange]
    window: int
    work: dict[tuple[int, int], _DeviceWork] = field(default_factory=dict)  # by group size and key heads


class TritonBackend(AttentionBackend):
    """Reads pages where they lie, a shared span once for all its members' rows.

    Under Triton's interpreter it runs on a CPU, for tests. `min_keys` is the shortest range of keys that gets
    a program of its own where one row's keys are split.
    """

    name = "triton"

    def __init__(self, *, min_keys: int = _MIN_KEYS) -> None:
        self._reference = TorchBackend()
        self._min_keys = min_keys
        # The interpreter multiplies bfloat16 as if it were integers; it gets the same numbers as float32.
        self._interpreted = bool(triton.knobs.runtime.interpret)

    def plan(self, layout: StepLayout, tier: DeviceTier, window: int | None) -> TritonPlan:
        sizes = [layout.segments[span.members[0]].size for span in layout.spans]
        long = [span for span, size in zip(layout.spans, sizes, strict=True) if size > MAX_SHARING_TOKENS]
        short = [span for span, size in zip(layout.spans, sizes, strict=True) if size <= MAX_SHARING_TOKENS]
        tables, ranges = None, list[KeyRange]()
        if short:
            pages, offsets = page_tables(layout, short)
            tables = torch.from_numpy(pages).to(tier.device)
            ranges = key_ranges(layout, short, offsets, window)
        return TritonPlan(
            long=self._reference.plan(replace(layout, spans=tuple(long)), tier, window) if long else None,
            slots=torch.from_numpy(layout.slots).to(tier.device),
            positions=layout.positions,
            tables=tables,
            ranges=ranges,
            window=_NO_WINDOW if window is None else window,
        )

    def attend(self, plan: TritonPlan, tier: DeviceTier, call: LayerCall) -> torch.Tensor:
        keys, values = tier.keys[call.layer], tier.values[call.layer]
        if plan.long is not None:
            output = self._reference.attend(plan.long, tier, call)  # rows of short segments are undefined
        else:
            keys.index_copy_(1, plan.slots, call.key[0])
            values.index_copy_(1, plan.slots, call.value[0])
            _, heads, size, _ = call.query.shape
            output = call.query.new_empty((1, size, heads, values.shape[2]))
        if plan.tables is not None:
            with torch.cuda.device_of(output):  # type: ignore[no-untyped-call]
                self._launch(plan, plan.tables, tier, call, output)
        return output

    def _launch(
        self, plan: TritonPlan, tables: torch.Tensor, tier: DeviceTier, call: LayerCall, output: torch.Tensor
    ) -> None:
        keys, values = tier.keys[call.layer], tier.values[call.layer]
        query = call.query[0] if call.query.stride(3) == 1 else call.query[0].contiguous()
        heads, kv_heads = query.shape[0], keys.shape[0]
        group, key_dim, value_dim = heads // kv_heads, keys.shape[2], values.shape[2]
        work = self._work(plan, tier, group, kv_heads)
        outputs = query.new_empty((len(work.entries), heads, value_dim), dtype=torch.float32)
        totals = query.new_empty((len(work.entries), heads), dtype=torch.float32)
        attend_parts[(len(work.items), kv_heads)](
            query,
            keys,
            values,
            tables,
            work.items,
            work.entries,
            outputs,
            totals,
            query.stride(0),
            query.stride(1),
            keys.shape[1],
            call.scaling,
            call.softcap or 0.0,
            plan.window,
            GROUP=group,
            KEY_DIM=key_dim,
            VALUE_DIM=value_dim,
            PAGE=tier.block_size,
            BLOCK_M=work.tile,
            BLOCK_N=_keys_at_once(max(key_dim, value_dim), keys.dtype),
            BLOCK_K=_padded(key_dim),
            BLOCK_V=_padded(value_dim),
            DOT=tl.float32 if self._interpreted else _TYPES[keys.dtype],
            num_warps=4,
            num_stages=2,
        )
        merge_parts[(len(work.merges), heads)](
            outputs,
            totals,
            work.merges,
            totals if call.sinks is None else call.sinks.float().contiguous(),
            output,
            VALUE_DIM=value_dim,
            BLOCK_V=_padded(value_dim),
            SINKS=call.sinks is not None,
            num_warps=1 if value_dim <= 128 else 4,
        )

    def _work(self, plan: TritonPlan, tier: DeviceTier, group: int, kv_heads: int) -> _DeviceWork:
        """Cut once a step and shape of layer."""
        if (group, kv_heads) not in plan.work:
            if group > MAX_GROUP:
                raise ValueError(f"{group} query heads a key head are more than {MAX_GROUP}")
            tile = _tile(max(len(each.rows) for each in plan.ranges) * group, group)
            programs = max(1, _programs(tier.device) // kv_heads)
            work = cut(plan.ranges, plan.positions, tile // group, programs, self._min_keys)
            arrays = (
                torch.from_numpy(each).to(tier.device) for each in (work.items, work.entries, work.merges)
            )
            plan.work[group, kv_heads] = _DeviceWork(tile, *arrays)
        return plan.work[group, kv_heads]


def _tile(rows: int, group: int) -> int:
    """Rows of a tile: the small one where every range fits it."""
    small, large = (max(size, _padded(group)) for size in _TILES)
    return small if rows <= small else large


def _keys_at_once(dim: int, dtype: torch.dtype) -> int:
    """Keys of a tile, so that two stages of it fit a small GPU's shared memory."""
    return KEY_TILE if dim * dtype.itemsize <= 256 else KEY_TILE // 2


def _padded(dim: int) -> int:
    """The matrix units take powers of two from 16 on."""
    return max(16, 1 << (dim - 1).bit_length())


def _programs(device: torch.device) -> int:
    """How many programs keep the whole device busy."""
    if device.type != "cuda":
        return 32
    return int(torch.cuda.get_device_properties(device).multi_processor_count) * _PROGRAMS_A_PROCESSOR
