"""Opens the tiers below main memory as they are configured."""

import hashlib
from pathlib import Path

import torch

from cache_core.metrics import CacheObserver
from cache_core.tiers.base import Tier
from cache_core.tiers.codec import Codec
from cache_core.tiers.disk import DiskOptions, DiskTier
from cache_core.tiers.errors import TierError
from cache_core.tiers.files import make_private
from cache_core.tiers.folder_lock import FolderLock
from cache_core.tiers.quantize import FloatType, Quantization
from cache_core.tiers.store_folder import StoreFolder, StoreOptions
from cache_core.tiers.store_mooncake import MooncakeOptions, StoreMooncake
from engine_adapters.base import Tier as TierName
from engine_adapters.embedded.cold_config import ColdCoding, SharedStore
from engine_adapters.embedded.config import EmbeddedConfig
from engine_adapters.errors import EngineError

_FLOATS: dict[torch.dtype, FloatType] = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}


class ColdTierError(EngineError):
    """The tiers below the device cannot be used as configured; the message says why."""


def open_colder(
    config: EmbeddedConfig, kv_dtype: torch.dtype, observer: CacheObserver | None
) -> dict[TierName, Tier]:
    """The tiers below main memory, in the order they are asked.

    Raises:
        ColdTierError: one of them cannot be used; none is left open.
    """
    colder: dict[TierName, Tier] = {}
    try:
        codec = codec_of(config.coding, kv_dtype)
        if config.disk_cache_dir is not None:
            options = (config.disk_cache_dir, config.disk_cache_bytes, codec, config.scope_share)
            colder["disk"] = _open_disk(*options, observer)
        if config.store is not None:
            colder["store"] = _open_store(config.store, codec, config.scope_share, observer)
    except BaseException:
        for tier in colder.values():
            tier.close()
        raise
    return colder


def check_disk_folder(folder: Path | None) -> None:
    """Refuse a folder for the disk tier that cannot be had, before a model is loaded for nothing.

    Raises:
        ColdTierError: another process has it, or it cannot be written.
    """
    if folder is None:
        return
    try:
        make_private(folder)
        FolderLock.check(folder)
    except (TierError, OSError) as error:
        raise ColdTierError(f"The disk cache cannot be opened: {error}") from error


def quantization_of(coding: ColdCoding, kv_dtype: torch.dtype) -> Quantization | None:
    """What is lost below main memory, within which bound; None: nothing.

    Raises:
        ColdTierError: this model's KV cannot be quantized, or the bound is none.
    """
    if coding.quantize is None:
        return None
    if kv_dtype not in _FLOATS:
        raise ColdTierError(f"KV in {kv_dtype} is as small as it gets: leave out quantizing what is cold.")
    try:
        return Quantization(_FLOATS[kv_dtype], coding.quantize_error, form=coding.quantize)
    except ValueError as error:
        raise ColdTierError(f"Cold blocks cannot be quantized like that: {error}") from error


def codec_of(coding: ColdCoding, kv_dtype: torch.dtype) -> Codec:
    """What the tiers below main memory do to a block's bytes."""
    key = None if coding.secret is None else hashlib.sha256(b"kvgate cold blocks" + coding.secret).digest()
    return Codec(coding.compression, kv_dtype.itemsize, quantization_of(coding, kv_dtype), key)


def _open_disk(
    folder: Path, capacity: int, codec: Codec, share: float, observer: CacheObserver | None
) -> DiskTier:
    try:
        return DiskTier(DiskOptions(folder, capacity, codec=codec, scope_share=share), observer=observer)
    except (TierError, ValueError) as error:
        raise ColdTierError(f"The disk cache cannot be opened: {error}") from error


def _open_store(store: SharedStore, codec: Codec, share: float, observer: CacheObserver | None) -> Tier:
    try:
        if store.folder is not None:
            options = StoreOptions(
                store.folder,
                store.capacity_bytes,
                store.secret,
                codec=codec,
                mounted=store.mounted,
                scope_share=share,
            )
            return StoreFolder(options, observer=observer)
        if store.mooncake_master is not None:
            joined = MooncakeOptions(
                store.mooncake_master, store.secret, store.mooncake_host, store.mooncake_bytes, codec=codec
            )
            return StoreMooncake(joined, observer)
    except (TierError, ValueError) as error:
        raise ColdTierError(f"The shared store cannot be used: {error}") from error
    raise ColdTierError("A shared store is a folder or a Mooncake master; neither was stated.")
