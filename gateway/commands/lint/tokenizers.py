"""The tokenizer that lint counts with, by folder or by name."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from canon.errors import CanonError, ModelFolderError
from gateway.local.default_tokenizer import default_tokenizer

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
        return default_tokenizer(_say)
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelFolderError(
            f"There is no folder {name}. --tokenizer takes a model's folder, {_DEFAULT}, or owner/model."
        )
    return _from_hub(name)


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
