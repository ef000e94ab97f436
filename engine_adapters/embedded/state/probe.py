"""Looks, at load, whether a model keeps states beside its KV, and whether it can go on from them."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from engine_adapters.embedded.attention import AttentionContext, LayerCall, ModelKeywords, attending
from engine_adapters.embedded.state.auxiliary import AuxiliaryState
from engine_adapters.embedded.state.cache_layers import UnknownLayerError, layer_kinds, make_cache
from engine_adapters.embedded.state.layout import StateLayout
from engine_adapters.embedded.state.model_call import call_model
from engine_adapters.embedded.unsupported import UnsupportedModelError

_log = logging.getLogger(__name__)

_TOKENS, _FIRST = 8, 5  # the probe's prompt, and its first chunk
_TOLERANCE = 1e-2  # of the largest value; states that start from nothing are further off, rounding is not


class _Silent(AttentionContext):
    """Attention that says nothing: the same for a whole prompt and for its chunks."""

    def attend(self, call: LayerCall, seen: ModelKeywords) -> torch.Tensor:
        rows, heads, size, _ = call.query.shape
        return call.value.new_zeros((rows, size, heads, call.value.shape[-1]))


@torch.inference_mode()
def probe_state(model: torch.nn.Module) -> StateLayout | None:
    """Where the model's states are; None: it keeps KV alone.

    Raises:
        UnsupportedModelError: it keeps something else, or does not continue a prompt from its states.
    """
    config: Any = model.config
    name = str(config.model_type)
    try:
        kinds = layer_kinds(config)
    except UnknownLayerError as error:
        raise UnsupportedModelError(f"{name}: {error}, which is not supported") from None
    if not any(kind.states for kind in kinds):
        return None
    device = next(model.parameters()).device
    tokens = torch.arange(1, _TOKENS + 1, device=device) % int(
        config.get_text_config(decoder=True).vocab_size
    )
    layout, whole = _whole(model, kinds, tokens)
    if layout.silent:
        raise UnsupportedModelError(
            f"{name}: layers {list(layout.silent)} keep their state outside the cache, where no prompt can find its own"
        )
    return _continuing(name, model, layout, tokens, whole)


def _continuing(
    name: str, model: torch.nn.Module, layout: StateLayout, tokens: torch.Tensor, whole: AuxiliaryState
) -> StateLayout:
    """Some scans take no state to start from unless they get a single token."""
    if _alike(whole, _in_chunks(model, layout, tokens, [_FIRST, _TOKENS])):
        return layout
    if not _alike(whole, _in_chunks(model, layout, tokens, range(_FIRST, _TOKENS + 1))):
        raise UnsupportedModelError(
            f"{name}: its recurrent layers do not continue a prompt from their state, so a cached prefix would give "
            "wrong answers"
        )
    _log.warning(
        "%s: its recurrent layers go on from a state by one token at a time only. Answers are right, but what follows "
        "a reused prefix, or the first chunk of a long prompt, is computed at the speed of decoding.",
        name,
    )
    return replace(layout, single_steps=True)


def _whole(model: torch.nn.Module, kinds: Any, tokens: torch.Tensor) -> tuple[StateLayout, AuxiliaryState]:
    cache = make_cache(kinds, 0)
    with attending(_Silent()):
        call_model(model, tokens[None], torch.arange(len(tokens), device=tokens.device)[None], cache)
    layout, state = StateLayout.found_in(kinds, cache), AuxiliaryState()
    layout.store(cache, [state], [len(tokens)])
    return layout, state


def _in_chunks(
    model: torch.nn.Module, layout: StateLayout, tokens: torch.Tensor, ends: Iterable[int]
) -> AuxiliaryState:
    state, past = AuxiliaryState(), 0
    positions = torch.arange(len(tokens), device=tokens.device)
    for end in ends:
        cache = layout.load([state])
        with attending(_Silent()):
            call_model(model, tokens[None, past:end], positions[None, past:end], cache)
        layout.store(cache, [state], [end])
        past = end
    return state


def _alike(whole: AuxiliaryState, chunks: AuxiliaryState) -> bool:
    assert whole.tensors is not None, "the probe has computed it"
    assert chunks.tensors is not None, "the probe has computed it"
    for expected, found in zip(whole.tensors, chunks.tensors, strict=True):
        off = (expected.float() - found.float()).abs().max()
        if not off <= _TOLERANCE * expected.float().abs().max():
            return False
    return True
