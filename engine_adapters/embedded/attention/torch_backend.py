"""Attention in plain torch: the reference for every device, and the way where no kernel can be built."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from cache_core.device_tier import DeviceTier
from engine_adapters.embedded.attention.interface import LayerCall
from engine_adapters.embedded.attention.softmax_merge import attend_part, merge
from engine_adapters.embedded.attention.spans import Span
from engine_adapters.embedded.attention.step import AttentionBackend, StepLayout

Index = slice | torch.Tensor  # a slice where the run is unbroken: then it is a view, not a copy


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows that look at the same keys."""

    rows: Index
    keys: Index
    triangle: bool  # the keys are the rows' own tokens: each sees those up to itself
    visible: torch.Tensor | None  # [rows, keys] bool; None: all, or the triangle
    first: bool  # none of the rows has an output yet


@dataclass(frozen=True, slots=True)
class TorchPlan:
    parts: tuple[_Part, ...]
    slots: Index  # [T] where the new tokens' KV goes


class TorchBackend(AttentionBackend):
    """Gathers what is scattered, attends part by part, and merges by log-sum-exp."""

    name = "torch"

    def plan(self, layout: StepLayout, tier: DeviceTier, window: int | None) -> TorchPlan:
        touched = np.zeros(layout.size, dtype=bool)
        parts = []
        for span in layout.spans:
            for rows, begin, end in _pieces(layout, span):
                part = _part(layout, tier, span, rows, (begin, end), window, first=not touched[rows].any())
                if part is not None:
                    touched[rows] = True
                    parts.append(part)
        return TorchPlan(tuple(parts), _index(layout.slots, tier.device))

    def attend(self, plan: TorchPlan, tier: DeviceTier, call: LayerCall) -> torch.Tensor:
        keys, values = tier.keys[call.layer], tier.values[call.layer]
        _store(keys, plan.slots, call.key[0])
        _store(values, plan.slots, call.value[0])
        kv_heads, value_dim = keys.shape[0], values.shape[2]
        heads, size = call.query.shape[1], call.query.shape[2]
        query = call.query[0].view(kv_heads, heads // kv_heads, size, -1).transpose(1, 2)
        output = query.new_empty((*query.shape[:3], value_dim), dtype=torch.float32)
        total = query.new_empty(query.shape[:3], dtype=torch.float32)
        for part in plan.parts:
            out, lse = _attend(part, query[:, part.rows], keys[:, part.keys], values[:, part.keys], call)
            if not part.first:
                out, lse = merge(output[:, part.rows], total[:, part.rows], out, lse)
            output[:, part.rows] = out
            total[:, part.rows] = lse
        if call.sinks is not None:
            sinks = call.sinks.float().view(kv_heads, 1, -1)
            output *= torch.sigmoid(total - sinks).unsqueeze(-1)
        return output.transpose(0, 1).reshape(1, size, heads, value_dim).to(call.query.dtype)


def _store(pool: torch.Tensor, slots: Index, new: torch.Tensor) -> None:
    if isinstance(slots, slice):
        pool[:, slots] = new
    else:
        pool.index_copy_(1, slots, new)


def _pieces(layout: StepLayout, span: Span) -> Iterator[tuple[NDArray[np.int64], int, int]]:
    """Rows and key range, cut so that a range is all past or all new."""
    rows = np.concatenate([np.arange(r.start, r.stop) for r in map(layout.rows, span.members)])
    past = min(layout.segments[i].past for i in span.members)
    if span.begin < past < span.end and len(rows) > 1:
        yield rows, span.begin, past
        yield rows, past, span.end
    else:
        yield rows, span.begin, span.end


def _part(
    layout: StepLayout,
    tier: DeviceTier,
    span: Span,
    rows: NDArray[np.int64],
    keys: tuple[int, int],
    window: int | None,
    *,
    first: bool,
) -> _Part | None:
    begin, end = keys
    at = layout.positions[rows]
    if window is not None:
        begin = max(begin, int(at.min()) - window + 1)
        if begin >= end:
            return None
    table = layout.segments[span.members[0]].blocks
    seen = np.arange(begin, end)
    slots = table[seen // tier.block_size].astype(np.int64) * tier.block_size + seen % tier.block_size
    visible = seen[None, :] <= at[:, None]
    if window is not None:
        visible &= seen[None, :] > at[:, None] - window
    whole = bool(visible.all())
    triangle = not whole and window is None and begin == int(at[0]) and len(rows) == end - begin
    return _Part(
        rows=_index(rows, tier.device),
        keys=_index(slots, tier.device),
        triangle=triangle,
        visible=None if whole else torch.from_numpy(visible).to(tier.device),
        first=first,
    )


def _attend(
    part: _Part, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, call: LayerCall
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output [kv_heads, rows, group, value_dim] and log-sum-exp, over one part's keys."""
    plain = call.softcap is None and (part.visible is None or part.triangle)
    if plain and query.device.type == "cpu" and keys.shape[2] == values.shape[2]:
        return _flash_on_cpu(query, keys, values, part.triangle, call.scaling)
    return attend_part(query, keys, values, part.visible, call.scaling, call.softcap)


def _flash_on_cpu(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, causal: bool, scaling: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """torch's own tiled kernel; the query heads of a group become rows where all see the same keys."""
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    kv_heads, rows, group, dim = query.shape
    if not causal:
        packed = query.reshape(1, kv_heads, rows * group, dim)
        out, lse = flash(packed, keys[None], values[None], 0.0, False, scale=scaling)
        return out.float().reshape(kv_heads, rows, group, -1), lse.reshape(kv_heads, rows, group)
    spread = query.transpose(1, 2)  # [kv_heads, group, rows, dim]; kv heads take the batch's place
    out, lse = flash(
        spread,
        keys[:, None].expand(-1, group, -1, -1),
        values[:, None].expand(-1, group, -1, -1),
        0.0,
        True,
        scale=scaling,
    )
    return out.transpose(1, 2).float(), lse.transpose(1, 2)


def _index(numbers: NDArray[np.int64], device: torch.device) -> Index:
    start = int(numbers[0])
    if len(numbers) == 1 or bool((np.diff(numbers) == 1).all()):
        return slice(start, start + len(numbers))
    return torch.from_numpy(numbers).to(device)
