"""The tokenizer that lint counts with, by folder or by name."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from canon.errors import CanonError, ModelFolderError

if TYPE_CHECKING:
    from canon.tokens import PromptTokenizer

_FILES = ("tokenizer*", "special_tokens_map.json", "chat_template*", "config.json")
_DEFAULT = "smollm2-135m-instruct"


def tokenizer_of(name: str) -> "PromptTokenizer":
    """`name` is a model's folder, the default model's name, or owner/model at the Hugging Face hub.

    Raises:
        CanonError: there is no such tokenizer, or it cannot be used; the message says what to do.
    """
    from canon.tokens import PromptTokenizer

    return PromptTokenizer.from_folder(_folder(name))


def _folder(name: str) -> Path:
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if name.lower() == _DEFAULT:
        return _default_model()
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelFolderError(
            f"There is no folder {name}. --tokenizer takes a model's folder, {_DEFAULT}, or owner/model."
        )
    return _from_hub(name)


def _default_model() -> Path:
    from engine_adapters.embedded.models import ModelError, cache_dir, resolve_model

    try:
        return resolve_model(None, cache_dir=cache_dir(os.environ), progress=_say).tokenizer_path
    except ModuleNotFoundError as error:  # of what converts it
        raise ModelFolderError(
            f"The default model needs {error.name}: pip install 'kvgate[embedded]'"
        ) from None
    except ModelError as error:
        raise ModelFolderError(str(error)) from error


def _from_hub(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError:
        raise ModelFolderError(
            f"Fetching {name} needs huggingface_hub: pip install 'kvgate[embedded]', or give a folder."
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=list(_FILES)))
    except Exception as error:  # the hub's errors have many roots
        raise CanonError(f"The tokenizer of {name} cannot be fetched: {error}") from error


def _say(line: str) -> None:
    print(f"kvgate lint: {line}", file=sys.stderr, flush=True)
