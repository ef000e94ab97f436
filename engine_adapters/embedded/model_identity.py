"""What makes a model's KV bytes what they are, as its folder and the loaded model say."""

import hashlib
import json
from pathlib import Path
from typing import Any

from cache_core.identity import CacheIdentity, LayerShape
from cache_core.weights import UpdateEpoch, weights_digest, weights_stat
from engine_adapters.embedded.cold_stores import quantization_of
from engine_adapters.embedded.config import EmbeddedConfig
from engine_adapters.embedded.model_runner import ModelRunner
from engine_adapters.embedded.models import ModelFolder
from engine_adapters.embedded.models.chat_template import chat_template_text

STATE_FORMAT = "kvgate paged kv 1: layer by layer, keys then values, [kv head, token, dim]"
ROW_FORMAT = "kvgate state row 1: part by part"
_NOT_IN_KV = frozenset(
    {
        "_name_or_path",
        "architectures",
        "bos_token_id",
        "dtype",
        "eos_token_id",
        "initializer_range",
        "max_position_embeddings",
        "pad_token_id",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def identity(config: EmbeddedConfig, folder: ModelFolder, runner: ModelRunner) -> CacheIdentity:
    """Everything that makes this model's KV bytes what they are."""
    weights = weights_digest(folder.path, config.cache_dir / "weights.json")
    shapes = [LayerShape(each.kv_heads, each.key_dim, each.value_dim) for each in runner.kv.layers]
    dtype = str(runner.kv.dtype).removeprefix("torch.")
    return CacheIdentity(
        weights_digest=weights,
        update_epoch=UpdateEpoch(weights).value,
        tokenizer_digest=_digest(folder.tokenizer_path, _TOKENIZER_FILES),
        template_digest=hashlib.sha256(chat_template_text(folder.tokenizer_path).encode()).digest(),
        weight_dtype=dtype,
        kv_dtype=dtype,
        layers=shapes,
        position=_position(runner.position_config)
        | {"model config": config_digest(folder.path), "model code": _code_digest(folder)},
        block_size=config.block_size,
        state_format=_state_format(config, runner),
    )


def _state_format(config: EmbeddedConfig, runner: ModelRunner) -> str:
    """A loss is in it: what came up with one goes down again like everything else, so one key for all is not enough."""
    lossy = quantization_of(config.coding, runner.kv.dtype)
    parts = [STATE_FORMAT]
    if runner.state is not None:
        parts.append(f"{ROW_FORMAT}: {runner.state.described}")
    if lossy is not None:
        parts.append(f"cold in {lossy.stated}")
    return "; ".join(parts)


def _digest(folder: Path, names: tuple[str, ...]) -> bytes:
    digest = hashlib.sha256()
    for name in names:
        file = folder / name
        content = file.read_bytes() if file.is_file() else b""
        digest.update(f"{name}:{len(content)}:".encode() + content)
    return digest.digest()


def config_digest(folder: Path) -> str:
    """Of what the model's config says, but for what changes no key and no value."""
    try:
        stated = json.loads((folder / "config.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return ""
    kept = {key: value for key, value in stated.items() if key not in _NOT_IN_KV} if stated else {}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _position(stated: dict[str, Any]) -> dict[str, Any]:
    """The position config with values that can be hashed."""
    return {
        key: value if isinstance(value, (bool, int, float, str)) else repr(value)
        for key, value in stated.items()
    }


def _code_digest(folder: ModelFolder) -> str:
    """Of the code that comes with the model; empty where that is not run."""
    if not folder.trust_remote_code:
        return ""
    digest = hashlib.sha256()
    for file in sorted(folder.path.rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folder.path).as_posix()}:{len(content)}:".encode() + content)
    return digest.hexdigest()


def files_state(folder: Path) -> tuple[object, str]:
    """Another one, if weights or config in a model's folder were replaced meanwhile.

    Raises:
        OSError: they cannot be read.
    """
    return weights_stat(folder), config_digest(folder)
