"""The function Transformers' models call in place of their own attention."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface

from engine_adapters.embedded.unsupported import UnsupportedModelError

ATTENTION_NAME = "kvgate_paged"

# Not a keyword of the model's forward: some models hand none on to their attention.
_current: ContextVar["AttentionContext"] = ContextVar("kvgate_attention_context")


@dataclass(frozen=True, slots=True)
class LayerCall:
    """One attention layer's inputs in one packed forward: the T new tokens of all sequences in a row."""

    layer: int
    query: torch.Tensor  # [1, heads, T, key_dim]
    key: torch.Tensor  # [1, kv_heads, T, key_dim], positions already applied
    value: torch.Tensor  # [1, kv_heads, T, value_dim]
    scaling: float
    softcap: float | None
    sinks: torch.Tensor | None  # [heads]: a logit that takes part in the softmax and has no value


class AttentionContext(ABC):
    """What one forward pass is about; the same object serves all its layers."""

    updated: int | None = None  # the layer whose keys and values a cache took last, until it attends

    @abstractmethod
    def attend(self, call: LayerCall, seen: "ModelKeywords") -> torch.Tensor:
        """Attention output [1, T, heads, value_dim]."""


@dataclass(frozen=True, slots=True)
class ModelKeywords:
    """What else the model said about this layer, for checks at load time."""

    masked: bool  # the model built a mask of its own
    causal: bool
    sliding_window: int | None
    unknown: tuple[str, ...]  # keywords that carry a tensor nobody here knows to apply


_HARMLESS = frozenset({"position_ids", "cache_position", "position_embeddings"})


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    is_causal: bool | None = None,
    **keywords: Any,
) -> tuple[torch.Tensor, None]:
    """Write the new keys and values to the cache, then attend over the pages of each token's sequence.

    Raises:
        UnsupportedModelError: the module attends for no layer.
    """
    context = _current.get()
    call = LayerCall(
        layer=_layer(module, context),
        query=query,
        key=key,
        value=value,
        scaling=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        softcap=None if softcap is None else float(softcap),
        sinks=s_aux,
    )
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    seen = ModelKeywords(
        masked=attention_mask is not None,
        causal=bool(causal),
        sliding_window=sliding_window,
        unknown=_unknown_tensors(keywords),
    )
    return context.attend(call, seen), None


def note_update(layer: int) -> None:
    """A cache took keys and values of `layer`, over which some module attends next."""
    _current.get().updated = layer


def _layer(module: torch.nn.Module, context: AttentionContext) -> int:
    """Modules that several layers share do not say for which one they attend (Zamba's, Zamba2's)."""
    own, updated = getattr(module, "layer_idx", None), context.updated
    context.updated = None
    if isinstance(own, int) and own >= 0:
        return own
    if updated is None:
        raise UnsupportedModelError(
            f"{type(module).__name__} attends, and keeps no keys and values of a layer"
        )
    return updated


@contextmanager
def attending(context: AttentionContext) -> Iterator[None]:
    """Models called inside attend through `context`, on this thread."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def _unknown_tensors(keywords: dict[str, Any]) -> tuple[str, ...]:
    return tuple(
        name for name, value in keywords.items() if isinstance(value, torch.Tensor) and name not in _HARMLESS
    )


def register() -> None:
    """Make the name known to Transformers.

    It is left out of the mask interface on purpose: Transformers then builds no dense mask.
    """
    AttentionInterface.register(ATTENTION_NAME, paged_attention)
