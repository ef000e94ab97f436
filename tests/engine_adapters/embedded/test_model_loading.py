"""A model that cannot run over paged KV is refused at load, with its name and the reason."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from engine_adapters.embedded.attention import ATTENTION_NAME, register
from engine_adapters.embedded.model_loading import (
    UnsupportedModelError,
    context_length,
    probe_layers,
    refuse_by_config,
)
from engine_adapters.embedded.model_runner import ModelRunner
from engine_adapters.errors import EngineError
from tests.engine_adapters.embedded.reference_models import pair
from tests.tiny_models import save_tiny_model

SMALL: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (transformers.T5Config(), "t5: encoder-decoder"),
        (transformers.FalconConfig(), "falcon: .* never calls the attention interface"),
        (transformers.BloomConfig(), "bloom: .* never calls the attention interface"),
        (transformers.MptConfig(), "mpt: .* never calls the attention interface"),
        (transformers.RwkvConfig(), "rwkv: .* never calls the attention interface"),
        (transformers.xLSTMConfig(), "xlstm: .* never calls the attention interface"),
        (transformers.ViTConfig(), "vit: Transformers has no model for it that continues a text"),
        (transformers.Llama4TextConfig(), "llama4_text: layers of type chunked_attention"),
    ],
    ids=lambda value: value.model_type if hasattr(value, "model_type") else "",
)
def test_what_config_and_source_rule_out_is_refused_before_loading(
    config: transformers.PretrainedConfig, reason: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        refuse_by_config(config)


def probe(config: transformers.PretrainedConfig) -> Any:
    register()
    config._attn_implementation = ATTENTION_NAME
    return probe_layers(transformers.AutoModelForCausalLM.from_config(config).eval())


def test_layers_that_build_their_own_mask_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"doge, layer 0: .* mask of its own"):
        probe(transformers.DogeConfig(**SMALL, head_dim=16))


def test_layers_that_attend_twice_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"diffllama: layers .* more than once"):
        probe(transformers.DiffLlamaConfig(**{**SMALL, "num_attention_heads": 4, "num_key_value_heads": 2}))


def test_layers_without_attention_are_refused() -> None:
    _, model = pair("llama")
    model.model.layers[1].self_attn.forward = lambda hidden_states, **_: (hidden_states, None)
    with pytest.raises(UnsupportedModelError, match=r"llama: \[1\] of 3 layers"):
        probe_layers(model)


def test_each_layer_says_what_it_keeps_and_sees() -> None:
    _, model = pair("gemma3")
    specs = probe_layers(model)
    assert [spec.window for spec in specs] == [64, None, 64]
    assert {(s.layout.kv_heads, s.layout.key_dim, s.layout.value_dim) for s in specs} == {(2, 32, 32)}


def test_positions_that_change_with_length_limit_the_context() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
    config = transformers.LlamaConfig(**SMALL, max_position_embeddings=256, rope_parameters=rope)
    assert context_length(config) == 64
    assert context_length(transformers.LlamaConfig(**SMALL, max_position_embeddings=256)) == 256


def test_a_folder_is_loaded_as_it_is(tmp_path: Path) -> None:
    runner = ModelRunner.load(save_tiny_model("qwen3", tmp_path), device="cpu", num_blocks=20)
    assert (runner.num_blocks, runner.block_size, runner.vocab_size) == (20, 16, 512)
    assert runner.context_length == 320, "no sequence is longer than the cache"
    assert runner.eos_token_ids == (2,)
    assert runner.kv.dtype == torch.float32
    runner.warm_up()


def test_the_cache_gets_the_bytes_it_is_given(tmp_path: Path) -> None:
    runner = ModelRunner.load(save_tiny_model("llama", tmp_path), device="cpu", kv_bytes=1 << 20)
    per_block = 3 * 2 * 2 * 16 * 16 * 4  # layers, keys and values, heads, head_dim, tokens, bytes
    assert runner.num_blocks == (1 << 20) // per_block


def test_an_unknown_dtype_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="int8 is none of"):
        ModelRunner.load(save_tiny_model("llama", tmp_path), device="cpu", dtype="int8")


def test_a_folder_without_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises((OSError, ValueError)):
        ModelRunner.load(tmp_path, device="cpu")


def test_a_refusal_is_an_engine_error_and_says_what_to_do_instead() -> None:
    assert issubclass(UnsupportedModelError, EngineError)
    with pytest.raises(UnsupportedModelError, match=r"encoder-decoder .* Serve it with SGLang"):
        refuse_by_config(transformers.T5Config())


def test_code_that_fails_in_the_trial_run_is_refused_with_what_it_said() -> None:
    _, model = pair("llama")
    model.model.norm.forward = lambda _: 1 / 0
    with pytest.raises(
        UnsupportedModelError, match=r"llama: its code failed .*ZeroDivisionError: division by zero"
    ):
        ModelRunner(model, num_blocks=8)


def test_memory_that_runs_out_in_the_trial_run_is_no_refusal() -> None:
    def full(_: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("none left")

    _, model = pair("llama")
    model.model.norm.forward = full
    with pytest.raises(torch.OutOfMemoryError):
        ModelRunner(model, num_blocks=8)
