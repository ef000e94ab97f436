"""Attention over paged KV, behind Transformers' attention interface."""

from engine_adapters.embedded.attention.interface import (
    ATTENTION_NAME,
    AttentionContext,
    LayerCall,
    ModelKeywords,
    attending,
    note_update,
    register,
)
from engine_adapters.embedded.attention.native_backend import NativeBackend
from engine_adapters.embedded.attention.segment import Segment
from engine_adapters.embedded.attention.step import AttentionBackend, Step
from engine_adapters.embedded.attention.torch_backend import TorchBackend

__all__ = [
    "ATTENTION_NAME",
    "AttentionBackend",
    "AttentionContext",
    "LayerCall",
    "ModelKeywords",
    "NativeBackend",
    "Segment",
    "Step",
    "TorchBackend",
    "attending",
    "note_update",
    "register",
]
