"""At load it is tried whether a model goes on from its states; one that does not is served more slowly, or refused."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, PretrainedConfig

from engine_adapters.embedded import model_loading
from engine_adapters.embedded.model_loading import load_model
from engine_adapters.embedded.model_runner import ModelRunner, Segment
from engine_adapters.embedded.state.auxiliary import AuxiliaryState
from engine_adapters.embedded.unsupported import UnsupportedModelError
from tests.engine_adapters.embedded.engine_harness import random_tokens
from tests.engine_adapters.embedded.state.test_hybrid_logits import TOLERANCE, blocks_at, difference
from tests.tiny_hybrids import save_tiny_hybrid

SMALL: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "pad_token_id": None,
}


@pytest.fixture(scope="module")
def jamba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_hybrid("jamba", tmp_path_factory.mktemp("jamba"))


def saved(config: PretrainedConfig, folder: Path) -> Path:
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def test_scans_that_start_from_nothing_run_token_by_token_and_say_so(
    jamba: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(model_loading, "mend_mixers", lambda _: None)
    with caplog.at_level(logging.WARNING):
        runner = ModelRunner.load(jamba, device="cpu", num_blocks=32)
    assert "jamba: its recurrent layers go on from a state by one token at a time only" in caplog.text
    reference = AutoModelForCausalLM.from_pretrained(jamba, dtype=torch.float32).eval()
    tokens = random_tokens(60, 1)
    with torch.inference_mode():
        expected = reference(torch.from_numpy(tokens).long()[None], use_cache=False).logits[0]
    state = AuxiliaryState()
    runner.forward_all(Segment(tokens[:32], 0, blocks_at(0), sample=True, state=state))
    clone = state.clone()
    rest = runner.forward_all(Segment(tokens[32:], 32, blocks_at(0), sample=True, state=state))
    assert difference(rest, expected[32:]) <= TOLERANCE
    last = runner.forward([Segment(tokens[32:], 32, blocks_at(0), sample=True, state=clone)])
    assert difference(last, expected[-1:]) <= TOLERANCE
    assert clone.length == state.length == 60


def test_scans_that_are_mended_run_chunk_by_chunk(jamba: Path) -> None:
    runner = ModelRunner.load(jamba, device="cpu", num_blocks=32)
    assert runner.state is not None
    assert not runner.state.single_steps


def test_layers_that_lose_their_state_are_refused(jamba: Path) -> None:
    model = load_model(jamba, device=torch.device("cpu"), dtype=torch.float32, trust_remote_code=False)

    def forget(_: Any, __: Any, keywords: dict[str, Any]) -> None:
        cache = next(each for each in keywords.values() if hasattr(each, "layers"))
        state = cache.layers[0].recurrent_states[0]
        if state is not None:
            state.zero_()

    model.model.layers[0].mamba.register_forward_pre_hook(forget, with_kwargs=True)
    with pytest.raises(UnsupportedModelError, match="jamba: its recurrent layers do not continue a prompt"):
        ModelRunner(model, num_blocks=8)


def test_states_outside_the_cache_are_refused(tmp_path: Path) -> None:
    config = transformers.RecurrentGemmaConfig(**SMALL, num_hidden_layers=3, lru_width=32)
    with pytest.raises(
        UnsupportedModelError, match=r"recurrent_gemma: (layers )?\[0, 1\] (keep|of 3 layers do not)"
    ):
        ModelRunner.load(saved(config, tmp_path), device="cpu", num_blocks=8)


def test_a_cache_of_the_models_own_is_refused(tmp_path: Path) -> None:
    config = transformers.MiniMaxConfig(**SMALL, num_hidden_layers=2, num_local_experts=2, block_size=8)
    with pytest.raises(UnsupportedModelError, match=r"minimax: its code failed .* cache of its own"):
        ModelRunner.load(saved(config, tmp_path), device="cpu", num_blocks=8)
