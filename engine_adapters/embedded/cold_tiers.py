"""The tiers below the device, put together for one model."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cache_core import PrefixCache
from cache_core.identity import CacheIdentity, LayerShape
from cache_core.tiered import TieredCache, TieringOptions
from cache_core.tiers.base import Tier
from cache_core.tiers.disk import DiskOptions, DiskTier
from cache_core.tiers.host import HostTier
from cache_core.weights import UpdateEpoch, weights_digest
from engine_adapters.base import Tier as TierName
from engine_adapters.embedded.config import EmbeddedConfig
from engine_adapters.embedded.model_runner import ModelRunner
from engine_adapters.embedded.models import ModelFolder

STATE_FORMAT = "kvgate paged kv 1: layer by layer, keys then values, [kv head, token, dim]"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def open_cold_tiers(
    config: EmbeddedConfig,
    folder: ModelFolder,
    runner: ModelRunner,
    cache: PrefixCache,
    wake: Callable[[], None],
) -> TieredCache:
    """Host and disk tiers as configured; `wake` is called whenever a prefix came up.

    Raises:
        TierError: the disk folder cannot be used; the message says why.
    """
    block_bytes = runner.kv.bytes_per_block
    host = HostTier(config.host_cache_bytes, block_bytes, config.block_size)
    colder: dict[TierName, Tier] = {}
    if config.disk_cache_dir is not None:
        colder["disk"] = DiskTier(DiskOptions(config.disk_cache_dir, config.disk_cache_bytes))
    options = TieringOptions(config.write_policy)
    return TieredCache(
        cache, runner.kv, identity(config, folder, runner), host, colder, options, on_ready=wake
    )


def identity(config: EmbeddedConfig, folder: ModelFolder, runner: ModelRunner) -> CacheIdentity:
    """Everything that makes this model's KV bytes what they are."""
    weights = weights_digest(folder.path, config.cache_dir / "weights.json")
    shapes = [LayerShape(each.kv_heads, each.key_dim, each.value_dim) for each in runner.kv.layers]
    dtype = str(runner.kv.dtype).removeprefix("torch.")
    return CacheIdentity(
        weights_digest=weights,
        update_epoch=UpdateEpoch(weights).value,
        tokenizer_digest=_digest(folder.tokenizer_path, _TOKENIZER_FILES),
        template_digest=_digest(folder.tokenizer_path, ("chat_template.jinja",)),
        weight_dtype=dtype,
        kv_dtype=dtype,
        layers=shapes,
        position=_position(runner.position_config),
        block_size=config.block_size,
        state_format=STATE_FORMAT,
    )


def _digest(folder: Path, names: tuple[str, ...]) -> bytes:
    digest = hashlib.sha256()
    for name in names:
        file = folder / name
        content = file.read_bytes() if file.is_file() else b""
        digest.update(f"{name}:{len(content)}:".encode() + content)
    return digest.digest()


def _position(stated: dict[str, Any]) -> dict[str, Any]:
    """The position config with values that can be hashed."""
    return {
        key: value if isinstance(value, (bool, int, float, str)) else repr(value)
        for key, value in stated.items()
    }
