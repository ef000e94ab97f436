"""Transformers cache layers for models whose KV is paged: attention passes through, recurrent layers keep theirs."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import Cache, DynamicCache, PretrainedConfig, cache_utils
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, LinearAttentionLayer

from engine_adapters.embedded.attention import note_update

# For layers that keep nothing. Transformers 5.20 has none of these yet, and gives such layers states that stay empty.
_DUMMY: Any = getattr(cache_utils, "DummyLayer", ())
_KEEP_NOTHING = ("mlp", "moe")


@dataclass(frozen=True, slots=True)
class LayerKind:
    """What one layer of the model keeps."""

    attends: bool  # KV, which is ours to keep
    states: int  # recurrent and convolution states side by side; 0: none


class UnknownLayerError(Exception):
    """A layer keeps something that is neither KV nor such a state."""


def layer_kinds(config: PretrainedConfig) -> tuple[LayerKind, ...]:
    """What Transformers' own cache would keep for each layer.

    Raises:
        UnknownLayerError: a layer keeps something else; the message names it.
    """
    layers = DynamicCache(config=config).layers
    text: Any = config.get_text_config(decoder=True)
    names = getattr(text, "layer_types", None) or [""] * len(layers)
    return tuple(_kind(i, layer, name) for i, (layer, name) in enumerate(zip(layers, names, strict=False)))


def _kind(number: int, layer: Any, name: str) -> LayerKind:
    if name in _KEEP_NOTHING or isinstance(layer, _DUMMY):
        return LayerKind(attends=False, states=0)
    states = layer.number_of_states if isinstance(layer, LinearAttentionLayer) else 0
    attends = isinstance(layer, CacheLayerMixin)
    known = isinstance(layer, (LinearAttentionLayer, DynamicLayer))
    if not known or (attends and not isinstance(layer, DynamicLayer)):
        raise UnknownLayerError(f"layer {number} keeps a {type(layer).__name__}")
    return LayerKind(attends, states)


def make_cache(kinds: tuple[LayerKind, ...], past: int) -> Any:
    """An empty cache for one forward pass of sequences with `past` tokens behind them."""
    return Cache(layers=[_layer(number, kind, past) for number, kind in enumerate(kinds)])


def _layer(number: int, kind: LayerKind, past: int) -> Any:
    if kind.attends:
        return _PagedAndLinear(number, past, kind.states) if kind.states else _Paged(number, past)
    return LinearAttentionLayer(number_of_states=kind.states) if kind.states or not _DUMMY else _DUMMY()


class _Paged(CacheLayerMixin):  # type: ignore[misc]
    """Hands new keys and values on: the attention function writes them to their pages and reads the others there."""

    def __init__(self, number: int, past: int) -> None:
        super().__init__()
        self.is_initialized = True
        self._number = number
        self._past = past

    def lazy_initialization(self, *tensors: torch.Tensor) -> None:
        """Nothing is kept here."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        note_update(self._number)
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._past + query_length, 0

    def get_seq_length(self) -> int:
        return self._past

    def get_max_length(self) -> int:
        return -1


class _PagedAndLinear(LinearAttentionLayer, _Paged):  # type: ignore[misc]
    """A layer that attends and has recurrent states, too."""

    is_croppable = False
    is_compileable = False

    def __init__(self, number: int, past: int, states: int) -> None:
        _Paged.__init__(self, number, past)
        LinearAttentionLayer.__init__(self, number_of_states=states)

    def get_max_length(self) -> int:
        return -1
