"""Small models with random weights, large enough for attention to matter, and their own uncached logits."""

import copy
from functools import cache
from typing import Any

import numpy as np
import torch
import transformers
from transformers import PretrainedConfig

from engine_adapters.embedded.attention import ATTENTION_NAME, AttentionBackend, register
from engine_adapters.embedded.model_runner import ModelRunner, Segment

VOCAB = 500
BLOCK = 16
NUM_BLOCKS = 160

_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
}
_ALTERNATING = ["sliding_attention", "full_attention", "sliding_attention"]

# name: (config class, model class, changes to the shape, Transformers' attention to compare with)
ARCHITECTURES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}, "sdpa"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {}, "sdpa"),
    "mistral": ("MistralConfig", "MistralForCausalLM", {"sliding_window": 64}, "sdpa"),
    "gemma2": (
        "Gemma2Config",
        "Gemma2ForCausalLM",
        {"sliding_window": 64, "attn_logit_softcapping": 20.0, "layer_types": _ALTERNATING},
        "eager",
    ),
    "gemma3": (
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {"sliding_window": 64, "layer_types": _ALTERNATING},
        "sdpa",
    ),
    "gpt_oss": (
        "GptOssConfig",
        "GptOssForCausalLM",
        {"sliding_window": 64, "layer_types": _ALTERNATING, "num_local_experts": 2, "num_experts_per_tok": 1},
        "eager",
    ),
}


def make(config: PretrainedConfig, model_class: str, attention: str) -> torch.nn.Module:
    """A model with random weights."""
    config = copy.deepcopy(config)
    config._attn_implementation = attention
    register()
    model = getattr(transformers, model_class)(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2, generator=generator)
            elif "sinks" in name:
                parameter.normal_(generator=generator)
    return model


def pair(name: str, **shape: Any) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Transformers' own model, and the same weights over our attention."""
    config_class, model_class, changes, attention = ARCHITECTURES[name]
    config = getattr(transformers, config_class)(**{**_SHAPE, **changes, **shape})
    reference, ours = make(config, model_class, attention), make(config, model_class, ATTENTION_NAME)
    ours.load_state_dict(reference.state_dict())
    return reference, ours


class Case:
    """One model both ways, and a scattered order of blocks."""

    def __init__(self, name: str, backend: AttentionBackend, **shape: Any) -> None:
        self.reference, ours = pair(name, **shape)
        self.runner = ModelRunner(ours, block_size=BLOCK, num_blocks=NUM_BLOCKS, backend=backend)
        self.forget()

    def forget(self) -> None:
        """Every block may be taken again."""
        self._free = np.random.default_rng(0).permutation(NUM_BLOCKS).astype(np.int32)

    def take(self, tokens: int) -> np.ndarray:
        """Blocks for this many tokens, scattered, never given out before."""
        count = -(-tokens // BLOCK)
        taken, self._free = self._free[:count], self._free[count:]
        assert len(taken) == count
        return taken

    def uncached(self, tokens: np.ndarray) -> torch.Tensor:
        """Transformers' own logits [n, vocab]."""
        with torch.inference_mode():
            return self.reference(torch.from_numpy(tokens.astype(np.int64))[None], use_cache=False).logits[0]

    def prefill(self, tokens: np.ndarray, blocks: np.ndarray, past: int = 0) -> torch.Tensor:
        """Logits [n - past, vocab] of the tokens behind `past`."""
        return self.runner.forward_all(Segment(tokens[past:], past, blocks, sample=True))


@cache
def prompt(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(5, VOCAB, length).astype(np.int32)


def difference(ours: torch.Tensor, reference: torch.Tensor) -> float:
    """max|difference| / max|logit|."""
    assert ours.shape == reference.shape
    return float((ours - reference).abs().max() / reference.abs().max())
