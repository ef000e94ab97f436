"""From a folder on disk to a Transformers model that attends through our pages, or a clear refusal."""

import inspect
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PretrainedConfig
from transformers.utils.logging import disable_progress_bar

from cache_core.device_tier import LayerLayout
from engine_adapters.embedded.attention import (
    ATTENTION_NAME,
    AttentionContext,
    LayerCall,
    ModelKeywords,
    attending,
    register,
)
from engine_adapters.embedded.state.cache_layers import make_cache
from engine_adapters.embedded.state.layout import StateLayout
from engine_adapters.embedded.state.mixers import mend_mixers
from engine_adapters.embedded.state.model_call import call_model
from engine_adapters.embedded.unsupported import UnsupportedModelError

__all__ = [
    "LayerSpec",
    "UnsupportedModelError",
    "context_length",
    "eos_token_ids",
    "load_model",
    "probe_layers",
    "refuse_by_config",
]

_log = logging.getLogger(__name__)

_ATTENDING = frozenset({"full_attention", "sliding_attention", "hybrid", "hybrid_sliding"})
_LAYER_TYPES = _ATTENDING | {"linear_attention", "conv", "mlp", "moe"}
_GROWING_ROPE = frozenset({"dynamic", "longrope"})  # other frequencies once a sequence is long


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """What one attention layer keeps and sees."""

    layer: int  # of the model; in hybrid models not all of them attend
    layout: LayerLayout
    heads: int  # query heads
    window: int | None  # tokens a query sees, itself included; None: all before it


def load_model(
    folder: Path, *, device: torch.device, dtype: torch.dtype | str, trust_remote_code: bool
) -> torch.nn.Module:
    """Load weights from a local folder; nothing is fetched.

    Raises:
        UnsupportedModelError: the model's code shows that it cannot work here.
        OSError: the folder holds no complete model.
    """
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
    refuse_by_config(config)
    register()
    disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        config=config,
        dtype=dtype,
        attn_implementation=ATTENTION_NAME,
        local_files_only=True,
        trust_remote_code=trust_remote_code,
    )
    mend_mixers(model)
    return model.to(device).eval()  # type: ignore[no-any-return]


def refuse_by_config(config: PretrainedConfig) -> None:
    """Refuse, before weights are read, what config and source text already rule out."""
    name = str(config.model_type)
    text = config.get_text_config(decoder=True)
    if config.is_encoder_decoder:
        raise UnsupportedModelError(f"{name}: encoder-decoder models are not supported")
    if getattr(text, "use_bidirectional_attention", None) in (True, "all"):
        raise UnsupportedModelError(f"{name}: bidirectional attention cannot be cached by prefix")
    kinds = set(getattr(text, "layer_types", None) or ())
    strange = kinds - _LAYER_TYPES
    if strange:
        raise UnsupportedModelError(f"{name}: layers of type {', '.join(sorted(strange))} are not supported")
    mapping: Any = AutoModelForCausalLM._model_mapping
    if type(config) not in mapping:
        if "AutoModelForCausalLM" not in (getattr(config, "auto_map", None) or {}):
            raise UnsupportedModelError(f"{name}: Transformers has no model for it that continues a text")
    elif (not kinds or kinds & _ATTENDING) and not _uses_interface(mapping[type(config)]):
        raise UnsupportedModelError(f"{name}: its code in Transformers never calls the attention interface")


def _uses_interface(model_class: Any) -> bool:
    classes = model_class if isinstance(model_class, (list, tuple)) else [model_class]
    sources = [inspect.getsource(sys.modules[each.__module__]) for each in classes]
    return any("ALL_ATTENTION_FUNCTIONS" in source for source in sources)


class _Probe(AttentionContext):
    """Sees every layer's call once, with two tokens, and answers with zeros."""

    def __init__(self) -> None:
        self.calls: dict[int, tuple[LayerCall, ModelKeywords]] = {}
        self.repeated: set[int] = set()

    def attend(self, call: LayerCall, seen: ModelKeywords) -> torch.Tensor:
        if call.layer in self.calls:
            self.repeated.add(call.layer)
        self.calls[call.layer] = (call, seen)
        heads, size = call.query.shape[1], call.query.shape[2]
        return call.value.new_zeros((1, size, heads, call.value.shape[-1]))


@torch.inference_mode()
def probe_layers(model: torch.nn.Module, state: StateLayout | None = None) -> tuple[LayerSpec, ...]:
    """Run two tokens through the model and see what each layer asks of attention.

    Args:
        state: what a hybrid model keeps beside KV; its other layers need not attend.

    Raises:
        UnsupportedModelError: a layer keeps state other than KV, or wants what the backends do not do.
    """
    config: Any = model.config
    name, text = str(config.model_type), config.get_text_config(decoder=True)
    probe = _Probe()
    with attending(probe):
        _two_tokens(model, state)
    layers = set(range(text.num_hidden_layers))
    expected = layers if state is None else {i for i, kind in enumerate(state.kinds) if kind.attends}
    if set(probe.calls) != expected:
        missing = sorted(expected - set(probe.calls))
        raise UnsupportedModelError(
            f"{name}: {missing or sorted(probe.calls)} of {text.num_hidden_layers} layers do not attend through "
            "the attention interface (recurrent, convolutional, or an attention of their own)"
        )
    if probe.repeated:
        raise UnsupportedModelError(f"{name}: layers {sorted(probe.repeated)} attend more than once a step")
    for layer, (call, seen) in probe.calls.items():
        _refuse_call(f"{name}, layer {layer}", call, seen)
    specs = tuple(_spec(text, *probe.calls[layer]) for layer in sorted(expected))
    _refuse_hidden_windows(name, model, text, specs)
    return specs


def _two_tokens(model: torch.nn.Module, state: StateLayout | None) -> None:
    device = next(model.parameters()).device
    tokens = torch.zeros((1, 2), dtype=torch.long, device=device)
    positions = torch.arange(2, device=device)[None]
    if state is None:
        model(input_ids=tokens, position_ids=positions, use_cache=False)
    else:
        call_model(model, tokens, positions, make_cache(state.kinds, 0))


def _refuse_call(where: str, call: LayerCall, seen: ModelKeywords) -> None:
    if seen.masked:
        raise UnsupportedModelError(f"{where}: the model builds an attention mask of its own")
    if not seen.causal:
        raise UnsupportedModelError(f"{where}: attention is not causal")
    if seen.unknown:
        raise UnsupportedModelError(
            f"{where}: attention wants {', '.join(seen.unknown)}, which is not supported"
        )
    if call.query.shape[1] % call.key.shape[1]:
        raise UnsupportedModelError(f"{where}: query heads are no multiple of key heads")


def _spec(text: Any, call: LayerCall, seen: ModelKeywords) -> LayerSpec:
    window = seen.sliding_window
    kinds: Sequence[str] = getattr(text, "layer_types", None) or ()
    if window is None and kinds and kinds[call.layer] in ("sliding_attention", "hybrid_sliding"):
        window = text.sliding_window  # some models leave it to the mask alone
    layout = LayerLayout(call.key.shape[1], call.key.shape[3], call.value.shape[3])
    return LayerSpec(call.layer, layout, call.query.shape[1], None if window is None else int(window))


def _refuse_hidden_windows(name: str, model: torch.nn.Module, text: Any, specs: Sequence[LayerSpec]) -> None:
    """A window that only a mask would carry, and no layer type names, would be lost without a word."""
    if getattr(text, "sliding_window", None) is None or getattr(text, "layer_types", None):
        return
    if any(spec.window for spec in specs):
        return
    if "sliding_window_causal_mask" in inspect.getsource(sys.modules[type(model).__module__]):
        raise UnsupportedModelError(f"{name}: its sliding window does not reach the attention interface")


def context_length(config: PretrainedConfig) -> int | None:
    """Tokens a sequence may have, or None where the model does not say."""
    text = config.get_text_config(decoder=True)
    limit: int | None = getattr(text, "max_position_embeddings", None)
    rope: Any = getattr(text, "rope_parameters", None) or {}
    kind = rope.get("rope_type") if isinstance(rope, dict) else None
    original = rope.get("original_max_position_embeddings") if kind in _GROWING_ROPE else None
    original = original or (
        getattr(text, "original_max_position_embeddings", None) if kind in _GROWING_ROPE else None
    )
    if limit is not None and original is not None and original < limit:
        _log.warning(
            "context is limited to %d of %d tokens: %s positions change a cached prefix beyond that",
            original,
            limit,
            kind,
        )
        return int(original)
    return limit


def eos_token_ids(model: torch.nn.Module, folder: Path | None) -> tuple[int, ...]:
    """Ids that end a text, as generation config, else config, says."""
    config: Any = model.config
    found: Any = None
    if folder is not None and (folder / "generation_config.json").is_file():
        found = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
    if found is None:
        found = getattr(config, "eos_token_id", None)
    if found is None:
        found = getattr(config.get_text_config(decoder=True), "eos_token_id", None)
    if found is None:
        return ()
    return tuple(int(each) for each in (found if isinstance(found, (list, tuple)) else [found]))
