"""Hybrid models of two to four layers with random weights: attention beside recurrent or convolution layers."""

from pathlib import Path
from typing import Any, Literal, get_args

from tests.tiny_models import VOCABULARY, save_random_model

Hybrid = Literal["qwen3_next", "falcon_h1", "bamba", "lfm2"]
HYBRIDS: tuple[Hybrid, ...] = get_args(Hybrid)

Mended = Literal["jamba", "zamba", "zamba2", "nemotron_h"]
MENDED: tuple[Mended, ...] = get_args(Mended)  # whose own code computes something else where a prompt is cut

Recurrent = Literal["mamba", "mamba2"]
RECURRENT: tuple[Recurrent, ...] = get_args(Recurrent)  # without attention, and so without KV
Stateful = Hybrid | Mended | Recurrent

COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "tie_word_embeddings": False,
}
MAMBA: dict[str, Any] = {
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 32,
}


def hybrid_config(arch: Stateful) -> Any:
    """The configuration of a tiny hybrid model."""
    import transformers

    match arch:
        case "qwen3_next":
            return transformers.Qwen3NextConfig(
                **COMMON,
                num_hidden_layers=4,
                head_dim=16,
                linear_num_value_heads=4,
                linear_num_key_heads=2,
                linear_key_head_dim=16,
                linear_value_head_dim=16,
                moe_intermediate_size=32,
                shared_expert_intermediate_size=32,
                num_experts=4,
                num_experts_per_tok=2,
            )
        case "falcon_h1":
            return transformers.FalconH1Config(
                **COMMON, **MAMBA, num_hidden_layers=2, head_dim=16, mamba_d_ssm=64, mamba_n_heads=4
            )
        case "bamba":
            return transformers.BambaConfig(
                **COMMON, **MAMBA, num_hidden_layers=4, attn_layer_indices=[2], mamba_n_heads=8
            )
        case "lfm2":
            kinds = ["conv", "full_attention", "conv", "full_attention"]
            return transformers.Lfm2Config(
                **COMMON, num_hidden_layers=4, layer_types=kinds, block_multiple_of=16
            )
        case "jamba":
            return transformers.JambaConfig(
                **COMMON,
                num_hidden_layers=4,
                attn_layer_period=2,
                attn_layer_offset=1,
                num_experts=2,
                num_experts_per_tok=1,
                mamba_d_state=8,
                mamba_dt_rank=8,
            )
        case "zamba":
            return transformers.ZambaConfig(
                **COMMON,
                num_hidden_layers=3,
                attention_head_dim=32,
                attention_hidden_size=128,
                mamba_d_state=8,
                mamba_dt_rank=8,
                n_mamba_heads=2,
                layers_block_type=["mamba", "hybrid", "hybrid"],
            )
        case "zamba2":
            return transformers.Zamba2Config(
                **COMMON | {"num_key_value_heads": 4},
                num_hidden_layers=4,
                mamba_d_state=16,
                n_mamba_heads=8,
                chunk_size=32,
                use_mem_rope=True,
                use_shared_attention_adapter=True,
                adapter_rank=8,
                layers_block_type=["mamba", "hybrid", "mamba", "hybrid"],
            )
        case "nemotron_h":
            return transformers.NemotronHConfig(
                **COMMON,
                layers_block_type=["mamba", "moe", "attention", "mamba", "mlp"],
                head_dim=16,
                ssm_state_size=16,
                mamba_num_heads=8,
                mamba_head_dim=16,
                n_groups=1,
                chunk_size=32,
                n_routed_experts=4,
                moe_intermediate_size=32,
                moe_shared_expert_intermediate_size=32,
            )
        case "mamba":
            return transformers.MambaConfig(**COMMON, num_hidden_layers=2, state_size=8)
        case "mamba2":
            return transformers.Mamba2Config(
                **COMMON,
                num_hidden_layers=2,
                num_heads=8,
                head_dim=16,
                state_size=16,
                n_groups=1,
                chunk_size=32,
            )


def save_tiny_hybrid(arch: Stateful, folder: Path) -> Path:
    """Write a model of `arch` with a tokenizer into `folder`, and return `folder`."""
    return save_random_model(hybrid_config(arch), folder)
