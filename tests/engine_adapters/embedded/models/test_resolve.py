"""A local folder is served as it is, or refused with a cause and a next step."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine_adapters.embedded.models import (
    ModelFolder,
    ModelNotFoundError,
    RemoteCodeRefusedError,
    UnusableCheckpointError,
    resolve_model,
    silent,
)
from tests.tiny_models import Arch


def resolve(name: str | None, cache: Path, trust_remote_code: bool = False) -> ModelFolder:
    return resolve_model(name, cache_dir=cache, progress=silent, trust_remote_code=trust_remote_code)


@pytest.fixture
def model(tmp_path: Path, tiny_model: Callable[[Arch], Path]) -> Path:
    """A tiny model of one's own to damage."""
    return Path(shutil.copytree(tiny_model("llama"), tmp_path / "my-model"))


class TestLocalFolder:
    def test_serves_under_the_folders_name(self, model: Path, tmp_path: Path) -> None:
        found = resolve(f"{model}/", tmp_path / "cache")
        assert found == ModelFolder(model, model, "my-model", "folder", None)
        assert not (tmp_path / "cache").exists()

    def test_a_relative_folder_works(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(model)
        assert resolve(".", model).name == "my-model"

    @pytest.mark.parametrize("name", ["./nothing", "/no/such/folder", "a/b/c", ""])
    def test_a_missing_folder_is_said_to_be_missing(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(ModelNotFoundError, match="there is no folder"):
            resolve(name, tmp_path)

    def test_a_file_is_no_model(self, model: Path) -> None:
        with pytest.raises(UnusableCheckpointError, match="is a file"):
            resolve(str(model / "config.json"), model)

    def test_without_configuration(self, model: Path) -> None:
        (model / "config.json").unlink()
        with pytest.raises(UnusableCheckpointError, match=r"has no config\.json"):
            resolve(str(model), model)

    def test_pickled_weights_are_refused(self, model: Path) -> None:
        (model / "model.safetensors").rename(model / "pytorch_model.bin")
        with pytest.raises(UnusableCheckpointError, match=r"pickles \(pytorch_model\.bin\).*save_pretrained"):
            resolve(str(model), model)

    def test_weights_cut_off_are_noticed(self, model: Path) -> None:
        weights = model / "model.safetensors"
        os.truncate(weights, weights.stat().st_size - 1)
        with pytest.raises(UnusableCheckpointError, match="cut off"):
            resolve(str(model), model)

    @pytest.mark.parametrize("junk", [b"", b"{}", b"\xff" * 64, b"\x02" + b"\0" * 7 + b"[]"])
    def test_junk_for_weights_is_noticed(self, model: Path, junk: bytes) -> None:
        (model / "model.safetensors").write_bytes(junk)
        with pytest.raises(UnusableCheckpointError, match="damaged"):
            resolve(str(model), model)

    def test_a_large_file_pointer_is_named(self, model: Path) -> None:
        (model / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
        with pytest.raises(UnusableCheckpointError, match="git lfs pull"):
            resolve(str(model), model)

    def test_a_missing_shard_is_named(self, model: Path) -> None:
        index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
        (model / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(UnusableCheckpointError, match=r"model-2\.safetensors is missing"):
            resolve(str(model), model)

    def test_an_index_cannot_lead_out_of_the_folder(self, model: Path) -> None:
        (model / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"a": "../x.safetensors"}})
        )
        with pytest.raises(UnusableCheckpointError, match="outside"):
            resolve(str(model), model)

    def test_code_that_comes_with_a_model_needs_trust(self, model: Path) -> None:
        config = json.loads((model / "config.json").read_text())
        config |= {"model_type": "homemade", "auto_map": {"AutoConfig": "homemade.Config"}}
        (model / "config.json").write_text(json.dumps(config))
        with pytest.raises(RemoteCodeRefusedError, match="--trust-remote-code"):
            resolve(str(model), model)
        assert resolve(str(model), model, trust_remote_code=True).trust_remote_code

    def test_code_that_transformers_has_itself_needs_no_trust(self, model: Path) -> None:
        config = json.loads((model / "config.json").read_text()) | {"auto_map": {"AutoConfig": "x.Config"}}
        (model / "config.json").write_text(json.dumps(config))
        assert resolve(str(model), model).path == model


class TestTokenizer:
    def test_an_older_form_is_converted_into_the_cache(self, model: Path, tmp_path: Path) -> None:
        from tokenizers import Tokenizer

        fast = Tokenizer.from_file(str(model / "tokenizer.json"))
        (model / "tokenizer.json").unlink()
        (model / "vocab.json").write_text(json.dumps(fast.get_vocab()))
        (model / "merges.txt").write_text("#version: 0.2\n")
        config = json.loads((model / "tokenizer_config.json").read_text())
        (model / "tokenizer_config.json").write_text(
            json.dumps(config | {"tokenizer_class": "GPT2Tokenizer"})
        )
        found = resolve(str(model), tmp_path / "cache")
        assert found.path == model
        assert found.tokenizer_path.is_relative_to(tmp_path / "cache")
        converted = Tokenizer.from_file(str(found.tokenizer_path / "tokenizer.json"))
        text = "<|im_start|>user\nhéllo<|im_end|>"
        assert converted.encode(text).ids == fast.encode(text).ids
        assert resolve(str(model), tmp_path / "cache") == found

    def test_none_at_all_is_refused(self, model: Path, tmp_path: Path) -> None:
        for path in [*model.glob("*token*"), *model.glob("*.jinja")]:
            path.unlink()
        with pytest.raises(UnusableCheckpointError, match=r"copy the model's tokenizer\.json there"):
            resolve(str(model), tmp_path / "cache")
