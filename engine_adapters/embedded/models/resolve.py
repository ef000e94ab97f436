"""From the name an operator gives to a folder the engine can load."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from engine_adapters.embedded.models.checkpoint import check_checkpoint
from engine_adapters.embedded.models.default_model import DEFAULT_MODEL, default_model_folder
from engine_adapters.embedded.models.errors import ModelNotFoundError, UnusableCheckpointError
from engine_adapters.embedded.models.hub import download
from engine_adapters.embedded.models.progress import Progress
from engine_adapters.embedded.models.tokenizer_folder import tokenizer_folder


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A checkpoint on this machine, checked and ready to load."""

    path: Path  # config.json and safetensors weights
    tokenizer_path: Path  # tokenizer.json, tokenizer_config.json, chat template; mostly `path` itself
    name: str  # what it serves under
    origin: Literal["default", "folder", "hub"]
    revision: str | None  # the hub's commit; None where there is none
    trust_remote_code: bool = False


def resolve_model(
    name: str | None,
    *,
    cache_dir: Path,
    progress: Progress,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> ModelFolder:
    """Find, fetch or convert the model called `name`. Blocks; the first time for seconds to minutes.

    Args:
        name: None or "smollm2-135m-instruct": the default model. A folder here: that one, under the folder's
            name. Anything else: a name at the Hugging Face hub. HuggingFaceTB/SmolLM2-135M-Instruct is one of
            these: its weights are not the default model's, which were quantized.
        cache_dir: from `cache_dir`.
        revision: branch, tag or commit at the hub.

    Raises:
        ModelError: with its cause and the next step; errors.py has the tree.
    """
    if name is None or (name.lower() == DEFAULT_MODEL and not Path(name).is_dir()):
        folder = default_model_folder(cache_dir, progress)
        return ModelFolder(folder, folder, DEFAULT_MODEL, "default", None)
    found = local_folder(name) or _hub_folder(name, revision, trust_remote_code, progress)
    check_checkpoint(found.path, trust_remote_code=trust_remote_code)
    tokenizer = tokenizer_folder(
        found.path, cache_dir=cache_dir, trust_remote_code=trust_remote_code, progress=progress
    )
    return replace(found, tokenizer_path=tokenizer, trust_remote_code=trust_remote_code)


def _hub_folder(name: str, revision: str | None, trust_remote_code: bool, progress: Progress) -> ModelFolder:
    found = download(name, revision=revision, trust_remote_code=trust_remote_code, progress=progress)
    return ModelFolder(found.path, found.path, name, "hub", found.commit)


def local_folder(name: str) -> ModelFolder | None:
    """The folder `name` means, or None where it can only be a name at the hub. Raises ModelError."""
    path = Path(name).expanduser()
    if name.strip() and path.is_dir():
        path = path.resolve()
        return ModelFolder(path, path, path.name, "folder", None)
    if path.is_file():
        raise UnusableCheckpointError(
            f"{path} is a file: name the folder that holds config.json and safetensors"
        )
    looks_like_path = name.startswith((".", "/", "~")) or name.endswith("/") or name.count("/") > 1
    if looks_like_path or not name.strip():
        raise ModelNotFoundError(
            f"there is no folder {name!r}: check the path, or name a model as owner/model"
        )
    return None
