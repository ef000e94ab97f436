"""Attention by the native kernel: float32 on a CPU, one pass over scattered blocks for everything."""

from dataclasses import dataclass

import torch

from cache_core.device_tier import DeviceTier
from engine_adapters.embedded.attention.interface import LayerCall
from engine_adapters.embedded.attention.native_plan import NativePlan, plan_tasks
from engine_adapters.embedded.attention.step import AttentionBackend, StepLayout
from engine_adapters.embedded.native import AttentionCall, NativeLibrary


@dataclass(frozen=True, slots=True)
class _Prepared:
    plan: NativePlan  # keeps alive what the call points to
    call: AttentionCall  # layers fill in the rest


class NativeBackend(AttentionBackend):
    """Reads the pages where they lie; nothing is gathered."""

    name = "native"

    def __init__(self, library: NativeLibrary) -> None:
        self._library = library

    @staticmethod
    def serves(dtype: torch.dtype, device: torch.device) -> bool:
        return dtype == torch.float32 and device.type == "cpu"

    def plan(self, layout: StepLayout, tier: DeviceTier, window: int | None) -> _Prepared:
        threads = torch.get_num_threads()
        plan = plan_tasks(layout, window, tier.layers[0].kv_heads, threads)
        call = AttentionCall(
            token_slots=plan.slots.ctypes.data,
            tables=plan.tables.ctypes.data,
            items=plan.items.ctypes.data,
            rows=plan.rows.ctypes.data,
            merges=plan.merges.ctypes.data,
            slots=tier.num_slots,
            tokens=layout.size,
            block_size=tier.block_size,
            items_count=len(plan.items),
            merges_count=len(plan.merges),
            partials=plan.partials,
            threads=threads,
        )
        return _Prepared(plan, call)

    def attend(self, plan: _Prepared, tier: DeviceTier, call: LayerCall) -> torch.Tensor:
        query, key, value = _rows(call.query), _rows(call.key), _rows(call.value)
        sinks = None if call.sinks is None else call.sinks.float().contiguous()
        _, heads, size, key_dim = query.shape
        kv_heads, value_dim = value.shape[1], value.shape[3]
        output = query.new_empty((1, size, heads, value_dim))
        native = plan.call
        native.query, native.key, native.value = query.data_ptr(), key.data_ptr(), value.data_ptr()
        native.sinks = None if sinks is None else sinks.data_ptr()
        native.keys = tier.keys[call.layer].data_ptr()
        native.values = tier.values[call.layer].data_ptr()
        native.output = output.data_ptr()
        _, native.query_head, native.query_token, _ = query.stride()
        _, native.key_head, native.key_token, _ = key.stride()
        _, native.value_head, native.value_token, _ = value.stride()
        native.heads, native.kv_heads, native.key_dim, native.value_dim = heads, kv_heads, key_dim, value_dim
        native.scaling = call.scaling
        native.softcap = call.softcap or 0.0
        self._library.attend(native)
        return output


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """The kernel takes any strides but wants each head's elements side by side."""
    return tensor if tensor.stride(3) == 1 else tensor.contiguous()
