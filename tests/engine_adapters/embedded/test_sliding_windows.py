"""Layers that see a window only: reused at every boundary, and nothing before the window counts."""

from pathlib import Path

import pytest
import torch

from engine_adapters.embedded.attention import TorchBackend
from engine_adapters.embedded.config import EmbeddedConfig
from tests.engine_adapters.embedded.reference_models import BLOCK, Case, difference, prompt
from tests.engine_adapters.embedded.test_cold_tiers import PROMPT, ask, running, warm
from tests.tiny_models import Arch, save_tiny_model

TOLERANCE = 1e-4
WINDOW = 64  # of the reference models
LENGTH = 240


@pytest.fixture(params=["mistral", "gemma2", "gemma3", "gpt_oss"], scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param, TorchBackend())


def test_from_every_boundary_logits_are_the_uncached_ones(case: Case) -> None:
    case.forget()
    tokens, blocks = prompt(LENGTH), case.take(LENGTH)
    case.prefill(tokens, blocks)
    expected = case.uncached(tokens)
    for past in range(BLOCK, LENGTH, BLOCK):
        assert difference(case.prefill(tokens, blocks, past), expected[past:]) <= TOLERANCE


def test_where_all_layers_have_a_window_only_its_last_blocks_count() -> None:
    case = Case("mistral", TorchBackend())
    tokens, blocks = prompt(LENGTH), case.take(LENGTH)
    case.prefill(tokens, blocks)
    past = 12 * BLOCK
    unseen = (past - WINDOW) // BLOCK
    for layer in range(len(case.runner.kv.layers)):
        for views in case.runner.kv.block_views(layer):
            views[:, torch.from_numpy(blocks[:unseen].astype("int64"))] = 1e4
    logits = case.prefill(tokens, blocks, past)
    assert difference(logits, case.uncached(tokens)[past:]) <= TOLERANCE


@pytest.mark.parametrize("arch", ["mistral", "gemma3"])
def test_a_prefix_longer_than_the_window_survives_a_restart(arch: Arch, tmp_path: Path) -> None:
    config = EmbeddedConfig(
        model=str(save_tiny_model(arch, tmp_path / "model")),
        device="cpu",
        kv_bytes=1 << 20,
        host_cache_bytes=8 << 20,
        disk_cache_dir=tmp_path / "kv",
        disk_cache_bytes=64 << 20,
        cache_dir=tmp_path / "cache",
    )
    with running(config) as adapter:
        expected = warm(adapter)
    with running(config) as again:
        text, usage = ask(again, PROMPT)
        assert text == expected
        assert usage.reuse.by_tier == {"device": 0, "disk": 192}
