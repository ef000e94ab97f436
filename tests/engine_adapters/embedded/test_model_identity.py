"""What of a model's folder makes another cache identity, and what does not."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine_adapters.embedded.config import EmbeddedConfig
from engine_adapters.embedded.model_identity import identity
from engine_adapters.embedded.model_runner import ModelRunner
from engine_adapters.embedded.models import ModelFolder
from tests.tiny_models import save_tiny_model, tiny_config


@pytest.fixture
def config(tmp_path: Path) -> EmbeddedConfig:
    return EmbeddedConfig(cache_dir=tmp_path / "cache")


def folder_of(path: Path) -> ModelFolder:
    return ModelFolder(path, path, "tiny", "folder", None)


def identities_of(config: EmbeddedConfig, tmp_path: Path, changes: list[dict[str, Any]]) -> int:
    """How many identities models of these configurations, alike otherwise, have."""
    found = set()
    for number, change in enumerate(changes):
        path = save_tiny_model("llama", tmp_path / str(number), **change)
        runner = ModelRunner.load(path, device="cpu", num_blocks=4)
        found.add(identity(config, folder_of(path), runner).digest)
    return len(found)


def longrope(**more: float) -> dict[str, Any]:
    half = tiny_config("llama").head_dim // 2
    return {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * half,
        "long_factor": [2.0] * half,
        "original_max_position_embeddings": 128,
        **more,
    }


def test_a_context_length_counts_only_where_keys_are_scaled_by_it(
    config: EmbeddedConfig, tmp_path: Path
) -> None:
    lengths = (256, 4096)
    for name, rope, expected in (
        ("plain", None, 1),
        ("a factor of its own", longrope(factor=4.0), 1),
        ("a factor of the length", longrope(), 2),
    ):
        stated = {} if rope is None else {"rope_parameters": rope}
        changes = [{"max_position_embeddings": length, **stated} for length in lengths]
        assert identities_of(config, tmp_path / name, changes) == expected, name


def test_every_file_of_a_template_and_code_that_is_run_counts(
    config: EmbeddedConfig, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "model"
    shutil.copytree(tiny_model("llama"), path)
    runner, folder = ModelRunner.load(path, device="cpu", num_blocks=4), folder_of(path)

    def seen(trusted: bool = False) -> bytes:
        return identity(config, replace(folder, trust_remote_code=trusted), runner).digest

    (path / "modeling_tiny.py").write_text("scale = 1\n")
    plain, trusted = seen(), seen(trusted=True)
    (path / "modeling_tiny.py").write_text("scale = 2\n")
    assert seen() == plain
    assert seen(trusted=True) != trusted
    for name in ("chat_template.jinja", "additional_chat_templates/tools.jinja"):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text("{{ messages }}")
        assert seen() != plain, name
        plain = seen()
