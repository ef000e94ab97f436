"""A folder with a tokenizer.json, for models that ship only an older form of their tokenizer."""

import hashlib
from pathlib import Path

from engine_adapters.embedded.models.cache_folder import build_once
from engine_adapters.embedded.models.errors import UnusableCheckpointError
from engine_adapters.embedded.models.progress import Progress, stage

_SOURCES = ("vocab.json", "merges.txt", "vocab.txt", "*.model", "*.tiktoken", "*.jinja", "*token*.json")


def tokenizer_folder(model: Path, *, cache_dir: Path, trust_remote_code: bool, progress: Progress) -> Path:
    """`model` itself where it has a tokenizer.json, else a cached folder with the converted tokenizer.

    Raises:
        UnusableCheckpointError: Transformers cannot convert it.
        ModelCacheError: the cache folder cannot be written.
    """
    if (model / "tokenizer.json").is_file():
        return model
    files = sorted({path for pattern in _SOURCES for path in model.glob(pattern) if path.is_file()})
    if not files:
        raise UnusableCheckpointError(f"{model} holds no tokenizer: copy the model's tokenizer.json there")
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name}:{path.stat().st_size}:".encode() + path.read_bytes())
    source = f"sha256:{digest.hexdigest()}"

    def build(folder: Path) -> None:
        with stage(progress, f"{model.name}: converting its tokenizer to tokenizer.json"):
            _convert(model, folder, trust_remote_code=trust_remote_code)

    return build_once(cache_dir / "tokenizers" / digest.hexdigest()[:16], source, build, progress)


def _convert(model: Path, folder: Path, *, trust_remote_code: bool) -> None:
    from transformers import AutoTokenizer

    help_ = "save it as tokenizer.json with the Transformers release the model was made for"
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, use_fast=True, trust_remote_code=trust_remote_code)
        tokenizer.save_pretrained(folder)
    except (OSError, ValueError, ImportError, KeyError, AttributeError, TypeError) as error:
        raise UnusableCheckpointError(
            f"the tokenizer of {model} cannot be converted ({error}): {help_}"
        ) from error
    if not (folder / "tokenizer.json").is_file():
        raise UnusableCheckpointError(f"the tokenizer of {model} has no fast form: {help_}")
