"""From a model's name to a folder the engine can load."""

from cache_core.user_folder import cache_dir
from engine_adapters.embedded.models.default_model import DEFAULT_MODEL, find_gguf
from engine_adapters.embedded.models.errors import (
    ModelCacheError,
    ModelError,
    ModelNotFoundError,
    RemoteCodeRefusedError,
    UnusableCheckpointError,
)
from engine_adapters.embedded.models.progress import Progress, silent
from engine_adapters.embedded.models.resolve import ModelFolder, resolve_model

__all__ = [
    "DEFAULT_MODEL",
    "ModelCacheError",
    "ModelError",
    "ModelFolder",
    "ModelNotFoundError",
    "Progress",
    "RemoteCodeRefusedError",
    "UnusableCheckpointError",
    "cache_dir",
    "find_gguf",
    "resolve_model",
    "silent",
]
