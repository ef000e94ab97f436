"""Attention of a hybrid model: fewer layers attend than there are, and decoding sequences come as a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from cache_core.device_tier import DeviceTier
from engine_adapters.embedded.attention import AttentionBackend, LayerCall, ModelKeywords, Segment, Step


class HybridStep(Step):
    """`kv_layers` says where the tier keeps the KV of a layer of the model."""

    def __init__(
        self,
        segments: Sequence[Segment],
        tier: DeviceTier,
        windows: Sequence[int | None],
        backend: AttentionBackend,
        kv_layers: Mapping[int, int],
    ) -> None:
        super().__init__(segments, tier, windows, backend)
        self._kv_layers = kv_layers

    def attend(self, call: LayerCall, seen: ModelKeywords) -> torch.Tensor:
        layer = self._kv_layers[call.layer]
        if call.query.shape[0] == 1:
            return super().attend(replace(call, layer=layer), seen)
        packed = replace(  # from [rows, heads, 1, dim] to the tokens of all sequences in a row
            call,
            layer=layer,
            query=call.query.transpose(0, 2),
            key=call.key.transpose(0, 2),
            value=call.value.transpose(0, 2),
        )
        return super().attend(packed, seen).transpose(0, 1)
