"""Attention over paged KV, behind Transformers' attention interface."""

from engine_adapters.embedded.attention.interface import (
    ATTENTION_NAME,
    STEP_KEYWORD,
    AttentionContext,
    LayerCall,
    ModelKeywords,
    register,
)
from engine_adapters.embedded.attention.native_backend import NativeBackend
from engine_adapters.embedded.attention.segment import Segment
from engine_adapters.embedded.attention.step import AttentionBackend, Step
from engine_adapters.embedded.attention.torch_backend import TorchBackend

__all__ = [
    "ATTENTION_NAME",
    "STEP_KEYWORD",
    "AttentionBackend",
    "AttentionContext",
    "LayerCall",
    "ModelKeywords",
    "NativeBackend",
    "Segment",
    "Step",
    "TorchBackend",
    "register",
]
