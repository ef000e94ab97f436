"""Every other architecture with states that Transformers has goes on from them at any token."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from engine_adapters.embedded.model_runner import ModelRunner, Segment
from engine_adapters.embedded.state.auxiliary import AuxiliaryState
from tests.engine_adapters.embedded.engine_harness import random_tokens
from tests.engine_adapters.embedded.state.test_hybrid_logits import blocks_at, difference
from tests.tiny_hybrids import COMMON, MAMBA
from tests.tiny_models import save_random_model

LENGTH = 60
TOLERANCE = 1e-3  # rounding, where gates and choices of experts enlarge it

_LINEAR: dict[str, Any] = {
    "num_hidden_layers": 4,
    "head_dim": 16,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
_EXPERTS: dict[str, Any] = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
_LATENT: dict[str, Any] = {  # attention over latents, beside a delta rule
    "num_hidden_layers": 4,
    "moe_intermediate_size": 32,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
}
_THREE_TO_ONE = ["linear_attention"] * 3 + ["full_attention"]
_CONV = {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention"] * 2}

ARCHITECTURES: dict[str, dict[str, Any]] = {  # name of the configuration's class -> what is in it
    "Qwen3_5TextConfig": _LINEAR,
    "Qwen3_5MoeTextConfig": _LINEAR | _EXPERTS | {"shared_expert_intermediate_size": 32},
    "LaraMiniConfig": _LINEAR | _EXPERTS | {"shared_expert_intermediate_size": 32},
    "OlmoHybridConfig": {key: value for key, value in _LINEAR.items() if key != "head_dim"}
    | {"linear_num_key_heads": 4, "layer_types": _THREE_TO_ONE},
    "KimiLinearConfig": _LATENT
    | {"linear_head_dim": 16, "linear_num_heads": 4, "layer_types": _THREE_TO_ONE},
    "BailingHybridConfig": _LATENT
    | {"head_dim": 16, "layer_group_size": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
    "Lfm2MoeConfig": _CONV | _EXPERTS | {"num_dense_layers": 1},
    "Lfm3Config": {"num_hidden_layers": 4, "head_dim": 16, "sliding_window": 24},
    "ZayaConfig": {
        "num_hidden_layers": 4,
        "head_dim": 16,
        "moe_intermediate_size": 32,
        "num_experts": 4,
        "router_hidden_size": 16,
    },
    "FalconMambaConfig": {"num_hidden_layers": 2, "state_size": 8},
    "GraniteMoeHybridConfig": MAMBA
    | {
        "num_hidden_layers": 4,
        "mamba_n_heads": 8,
        "layer_types": ["mamba", "mamba", "attention", "mamba"],
        "num_local_experts": 4,
        "shared_intermediate_size": 64,
    },
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_whatever_was_reused_the_rest_has_the_logits_of_one_pass(name: str, tmp_path: Path) -> None:
    if not hasattr(transformers, name):
        pytest.skip(f"Transformers {transformers.__version__} has no {name}")
    folder = save_random_model(getattr(transformers, name)(**COMMON | ARCHITECTURES[name]), tmp_path)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    runner = ModelRunner.load(folder, device="cpu", num_blocks=16)
    assert runner.state is not None
    assert not runner.state.single_steps
    tokens = random_tokens(LENGTH, 1)
    with torch.inference_mode():
        expected = reference(torch.from_numpy(tokens.astype(np.int64))[None], use_cache=False).logits[0]
    for past in (1, 2, 16, 31, 48, LENGTH - 1):
        state = AuxiliaryState()
        runner.forward_all(Segment(tokens[:past], 0, blocks_at(0), sample=True, state=state))
        resumed = AuxiliaryState(state.snapshot())
        rest = runner.forward_all(Segment(tokens[past:], past, blocks_at(0), sample=True, state=resumed))
        assert difference(rest, expected[past:]) <= TOLERANCE, past
