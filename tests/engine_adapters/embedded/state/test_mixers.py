"""Mended layers leave Transformers' own models of the same architecture alone."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from engine_adapters.embedded.model_loading import load_model
from engine_adapters.embedded.model_runner import ModelRunner
from engine_adapters.embedded.state import mixers
from engine_adapters.embedded.state.mixers import mend_mixers
from tests.engine_adapters.embedded.engine_harness import random_tokens
from tests.tiny_hybrids import MENDED, Mended, save_tiny_hybrid


@pytest.mark.parametrize("arch", MENDED)
def test_an_unmended_model_computes_as_before(arch: Mended, tmp_path: Path) -> None:
    folder = save_tiny_hybrid(arch, tmp_path)
    other = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = torch.from_numpy(random_tokens(12, 1)).long()[None]

    @torch.inference_mode()
    def cut_in_two() -> torch.Tensor:
        cache = DynamicCache(config=other.config)
        parts = [other(tokens[:, part], cache=cache).logits for part in (slice(0, 11), slice(11, 12))]
        return torch.cat(parts, 1)

    before = cut_in_two()
    ModelRunner.load(folder, device="cpu", num_blocks=8)
    assert torch.equal(cut_in_two(), before)


def test_mending_two_models_wraps_a_function_once(tmp_path: Path) -> None:
    import transformers.models.jamba.modeling_jamba as code

    folder = save_tiny_hybrid("jamba", tmp_path)
    model = load_model(folder, device=torch.device("cpu"), dtype=torch.float32, trust_remote_code=False)
    scan = code.mamba_selective_scan
    mend_mixers(AutoModelForCausalLM.from_pretrained(folder))
    assert code.mamba_selective_scan is scan
    with pytest.raises(AttributeError):
        model.model.layers[0].mamba("no tensor", cache=None)
    assert mixers._calls.get() is None, "a call that fails leaves nothing behind"
