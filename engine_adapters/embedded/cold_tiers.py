"""The tiers below the device, put together for one model."""

import logging
from collections.abc import Callable

from cache_core import PrefixCache
from cache_core.metrics import CacheObserver
from cache_core.pinned_memory import pin_memory
from cache_core.tiered import StateOptions, TieredCache, TieringOptions
from cache_core.tiers.host import HostTier
from cache_core.transfer import LinkConfig, Way
from engine_adapters.embedded.cold_stores import ColdTierError, open_colder
from engine_adapters.embedded.config import EmbeddedConfig
from engine_adapters.embedded.model_identity import identity
from engine_adapters.embedded.model_runner import ModelRunner
from engine_adapters.embedded.models import ModelFolder
from engine_adapters.embedded.state.device_states import SnapshotsOnDevice

log = logging.getLogger("kvgate.engine")

_FEWEST_ROWS = 4


def open_cold_tiers(
    config: EmbeddedConfig,
    folder: ModelFolder,
    runner: ModelRunner,
    cache: PrefixCache,
    wake: Callable[[], None],
    observer: CacheObserver | None = None,
    states: SnapshotsOnDevice | None = None,
) -> TieredCache | None:
    """Host, disk and store as configured; `wake` is called whenever a prefix came up, `observer` told what happens.

    `states` are a hybrid model's, which go down with its KV.

    None where the machine refuses the memory: the engine then works without, as a warning says.

    Raises:
        ColdTierError: the sizes are too small, disk or store cannot be used, or weights cannot be read.
    """
    block_bytes = runner.kv.bytes_per_block
    if config.host_cache_bytes < block_bytes:
        raise ColdTierError(
            f"The host cache of {config.host_cache_bytes} bytes is less than one block of this model, which takes "
            f"{block_bytes}. Make it larger, or 0 for none."
        )
    try:
        key = identity(config, folder, runner)
    except OSError as error:
        raise ColdTierError(f"The model's files cannot be read for the cache's identity: {error}") from error
    for_states = 0 if states is None else _bytes_for_states(config.host_cache_bytes, states, runner)
    for_blocks = max(config.host_cache_bytes - for_states, block_bytes)
    host = _open_host(for_blocks, block_bytes, config, observer)
    if host.refusal is not None:
        log.warning("nothing is cached below the device: %s", host.refusal)
        return None
    colder = open_colder(config, runner.kv.dtype, observer)
    reserve = min(
        TieringOptions().reserve_blocks, runner.num_blocks // 8
    )  # a small pool has room for fetches, too
    options = TieringOptions(
        config.write_policy, reserve_blocks=reserve, layered=config.layered_loads, links=_links(config)
    )
    try:
        kept = None if states is None else _open_rows(states, for_states, config, observer)
        tiers = TieredCache(
            cache, runner.kv, key, host, colder, options, observer, on_ready=wake, states=kept
        )
    except BaseException:
        for tier in colder.values():
            tier.close()
        raise
    if states is not None:
        states.tell_evicted(tiers.state_leaves)
    return tiers


def _links(config: EmbeddedConfig) -> dict[Way, LinkConfig]:
    if config.cold_write_rate is None:
        return {}
    limited = LinkConfig(bandwidth=config.cold_write_rate)
    return {("host", "disk"): limited, ("host", "store"): limited}


def _bytes_for_states(host_bytes: int, states: SnapshotsOnDevice, runner: ModelRunner) -> int:
    """Of the host's memory: the same share as on the device, or a few rows where they take no more than half."""
    share = int(host_bytes * runner.state_share)
    return max(share, min(_FEWEST_ROWS * states.rows.row_bytes, host_bytes // 2))


def _open_host(
    nbytes: int,
    row_bytes: int,
    config: EmbeddedConfig,
    observer: CacheObserver | None,
    apart: bool = False,
) -> HostTier:
    return HostTier(
        nbytes,
        row_bytes,
        config.block_size,
        pin_memory=pin_memory,
        observer=observer,
        scope_share=config.scope_share,
        apart=apart,
    )


def _open_rows(
    states: SnapshotsOnDevice, nbytes: int, config: EmbeddedConfig, observer: CacheObserver | None
) -> StateOptions:
    rows = _open_host(nbytes, states.rows.row_bytes, config, observer, apart=True)
    if rows.refusal is not None:
        log.warning(
            "states of this hybrid model stay on the device, and so its KV is of no use below it: "
            "%s; a larger host cache would help",
            rows.refusal,
        )
    return StateOptions(rows, states)
