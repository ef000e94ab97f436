"""A GGUF file of the Llama family, written out as the folder Transformers loads.

The file is read with the `gguf` library alone. Transformers' own GGUF loader needs `accelerate`, and it gives
the tokenizer only GPT-2's pre-tokenizer, while SmolLM's also splits every digit.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine_adapters.embedded.models.errors import UnusableCheckpointError
from engine_adapters.embedded.models.gguf_fields import GgufFields
from engine_adapters.embedded.models.gguf_tokenizer import write_tokenizer
from engine_adapters.embedded.models.progress import Progress, stage

_OUTSIDE_LAYERS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(gguf: Path, folder: Path, name: str, progress: Progress) -> None:
    """Write weights (float32), configuration, tokenizer and chat template of `gguf` into `folder`.

    Float32 is the smallest common type that holds `scale * quant + minimum` exactly. `name` begins every line
    of progress.

    Raises:
        UnusableCheckpointError: the file is damaged, or not of the family this converter knows.
    """
    from gguf import GGUFReader

    try:
        with stage(progress, f"{name}: reading {gguf.name}"):
            reader = GGUFReader(gguf)
        fields = GgufFields(reader)
        with stage(progress, f"{name}: writing the tokenizer"):
            write_tokenizer(fields, folder)
        config = llama_config(fields, tied=all(tensor.name != "output.weight" for tensor in reader.tensors))
        _write_json(folder / "config.json", config)
        special = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
        _write_json(folder / "generation_config.json", special)
        _write_weights(reader.tensors, config, folder, name, progress)
    except (ValueError, KeyError, IndexError) as error:
        raise UnusableCheckpointError(f"{gguf} cannot be converted: {error}") from error


def llama_config(fields: GgufFields, *, tied: bool) -> dict[str, Any]:
    """What stands in config.json."""
    if (architecture := fields.get("general.architecture", str)) != "llama":
        raise UnusableCheckpointError(f"the GGUF file holds a {architecture} model, not a llama one")
    theta = fields.get("llama.rope.freq_base", float)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "hidden_size": fields.get("llama.embedding_length", int),
        "intermediate_size": fields.get("llama.feed_forward_length", int),
        "num_hidden_layers": fields.get("llama.block_count", int),
        "num_attention_heads": fields.get("llama.attention.head_count", int),
        "num_key_value_heads": fields.get("llama.attention.head_count_kv", int),
        "head_dim": fields.get("llama.rope.dimension_count", int),
        "max_position_embeddings": fields.get("llama.context_length", int),
        # GGUF keeps float32: its shortest spelling is what the model's authors wrote.
        "rms_norm_eps": float(str(np.float32(fields.get("llama.attention.layer_norm_rms_epsilon", float)))),
        "rope_theta": theta,  # where Transformers before 5 and other engines look
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "vocab_size": fields.get("llama.vocab_size", int),
        "tie_word_embeddings": tied,
        "bos_token_id": fields.get("tokenizer.ggml.bos_token_id", int),
        "eos_token_id": fields.get("tokenizer.ggml.eos_token_id", int),
        "pad_token_id": fields.get("tokenizer.ggml.padding_token_id", int),
    }


def _write_weights(
    tensors: Sequence[Any], config: dict[str, Any], folder: Path, name: str, progress: Progress
) -> None:
    from gguf.quants import dequantize
    from safetensors.numpy import save_file

    weights: dict[str, NDArray[np.float32]] = {}
    text = f"{name}: turning the weights into float32"
    with stage(progress, text, detail=lambda: f"{len(weights)} of {len(tensors)} tensors"):
        for tensor in tensors:
            weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
            weights[_their_name(tensor.name)] = _rotary_order(tensor.name, weight, config)
    due = len(_IN_LAYER) * config["num_hidden_layers"] + (2 if config["tie_word_embeddings"] else 3)
    if len(weights) != due:
        raise UnusableCheckpointError(f"the GGUF file holds {len(weights)} weights, not {due}")
    size = sum(weight.nbytes for weight in weights.values()) >> 20
    with stage(progress, f"{name}: writing {size} MiB of safetensors"):
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _their_name(name: str) -> str:
    """Transformers' name of a GGUF tensor."""
    if name in _OUTSIDE_LAYERS:
        return _OUTSIDE_LAYERS[name]
    found = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if not found or found[2] not in _IN_LAYER:
        raise UnusableCheckpointError(f"the GGUF file holds a weight not known here: {name}")
    return f"model.layers.{found[1]}.{_IN_LAYER[found[2]]}.weight"


def _rotary_order(name: str, weight: NDArray[np.float32], config: dict[str, Any]) -> NDArray[np.float32]:
    """Rows of q and k from GGUF's order (pairs side by side) to Transformers' (first halves, second ones).

    Formula: the inverse of `permute` in llama.cpp's convert_hf_to_gguf.py.
    """
    heads = {".attn_q.": "num_attention_heads", ".attn_k.": "num_key_value_heads"}
    key = next((key for part, key in heads.items() if part in name), None)
    if key is None:
        return np.ascontiguousarray(weight)
    pairs = weight.reshape(config[key], -1, 2, weight.shape[-1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(weight.shape))


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")
