"""Whether a folder holds a checkpoint that can be loaded, and safely: checked before any heavy import."""

import json
from pathlib import Path
from typing import Any

from engine_adapters.embedded.models.errors import RemoteCodeRefusedError, UnusableCheckpointError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

_AS_SAFETENSORS = (
    "`AutoModelForCausalLM.from_pretrained(...)` followed by `save_pretrained(...)` in Transformers writes "
    "such a folder"
)


def check_checkpoint(folder: Path, *, trust_remote_code: bool) -> None:
    """Raise unless `folder` holds a configuration and whole safetensors weights that may be loaded.

    Raises:
        UnusableCheckpointError: something is missing, cut off, or of a kind that is not loaded.
        RemoteCodeRefusedError: the model's code comes with it, and that is not allowed.
    """
    config = read_config(folder)
    for name in weight_files(folder):
        _check_safetensors(folder / name)
    check_code(folder, config, trust_remote_code=trust_remote_code)


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of `folder`."""
    path = folder / "config.json"
    if not path.is_file():
        raise UnusableCheckpointError(f"{folder} is no model folder: {_instead_of_config(folder)}")
    try:
        config = json.loads(path.read_bytes())
    except ValueError as error:
        raise UnusableCheckpointError(f"{path} is no JSON ({error}): fetch the model again") from error
    if not isinstance(config, dict):
        raise UnusableCheckpointError(f"{path} is not a JSON object: fetch the model again")
    return config


def weight_files(folder: Path) -> tuple[str, ...]:
    """Names of the safetensors files that make up the weights, from their index where there is one."""
    index = folder / INDEX
    if index.is_file():
        try:
            names = tuple(sorted(set(json.loads(index.read_bytes())["weight_map"].values())))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnusableCheckpointError(f"{index} is damaged: fetch the model again") from error
        if all(isinstance(name, str) and Path(name).name == name for name in names):
            return names
        raise UnusableCheckpointError(f"{index} names files outside of its folder: fetch the model anew")
    if (folder / SINGLE).is_file():
        return (SINGLE,)
    raise UnusableCheckpointError(f"{folder} holds no {SINGLE}: {_instead_of_weights(folder)}")


def check_code(folder: Path, config: dict[str, Any], *, trust_remote_code: bool) -> None:
    """Refuse a model whose code is not Transformers' own, unless the operator trusts it."""
    if trust_remote_code or "auto_map" not in config:
        return
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    kind = config.get("model_type")
    if kind not in CONFIG_MAPPING_NAMES:
        raise RemoteCodeRefusedError(
            f"{folder.name} brings Python code of its own ({kind!r} is not among Transformers' models). "
            "Loading it would run that code: if you have read and trust it, start with --trust-remote-code"
        )


def _check_safetensors(path: Path) -> None:
    """The header's last offset and the file's length must agree, which a download cut short does not."""
    if not path.is_file():
        raise UnusableCheckpointError(f"{path} is missing, though the index names it: fetch the model again")
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if start == b"version ":
            raise UnusableCheckpointError(
                f"{path} is a Git LFS pointer, not weights: run `git lfs pull` there"
            )
        length = int.from_bytes(start, "little")
        header = file.read(length) if length <= size - 8 else b""
    try:
        ends = [
            entry["data_offsets"][1] for name, entry in json.loads(header).items() if name != "__metadata__"
        ]
        whole = size == 8 + length + max(ends, default=0)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        whole = False
    if not whole:
        raise UnusableCheckpointError(f"{path} is cut off or damaged ({size} bytes): fetch the model again")


def _instead_of_config(folder: Path) -> str:
    if (folder / "adapter_config.json").is_file():
        return "it holds an adapter (LoRA). Merge it into its base model first"
    if any(folder.glob("*.gguf")):
        return f"it holds GGUF files, and safetensors are loaded here; {_AS_SAFETENSORS}"
    return "it has no config.json. Name the folder that holds config.json and the *.safetensors files"


def _instead_of_weights(folder: Path) -> str:
    pickles = [path for kind in ("*.bin", "*.pt", "*.pth") for path in folder.glob(kind)]
    if pickles:
        return (
            f"its weights are pickles ({pickles[0].name}), and reading a pickle can run any code. If you "
            f"trust them, convert them once: {_AS_SAFETENSORS}"
        )
    return f"only safetensors weights are loaded; {_AS_SAFETENSORS}"
