"""Copies of device blocks for colder tiers, parents first, in the background."""

import logging
from collections.abc import Mapping

import numpy as np

from cache_core.block_header import BlockHeader
from cache_core.device_tier import DeviceTier
from cache_core.metrics import TierName
from cache_core.prefix_cache import PrefixCache
from cache_core.tiered.chain import ScopeChains
from cache_core.tiers.base import Tier
from cache_core.tiers.host import HostTier
from cache_core.tokens import Tokens
from cache_core.transfer import Priority, TransferEngine, TransferRefusedError
from cache_core.transfer.copy_lane import CopyLane
from cache_core.transfer.device_jobs import DeviceToHost
from cache_core.transfer.tier_jobs import HostToTier

log = logging.getLogger(__name__)


class Backup:
    """Writes ready prefixes through to the host tier and from there to the colder ones.

    A prefix is always copied from its first block that is missing on, so a child that is backed up has a backed-up
    parent. When a link is full the copy is left for the next time.
    """

    def __init__(
        self,
        cache: PrefixCache,
        device: DeviceTier,
        host: HostTier,
        colder: Mapping[TierName, Tier],
        engine: TransferEngine,
        lane: CopyLane,
        chains: ScopeChains,
    ) -> None:
        self._cache = cache
        self._device = device
        self._host = host
        self._colder = colder
        self._engine = engine
        self._lane = lane
        self._chains = chains

    def copy(self, scope: str, tokens: Tokens) -> None:
        """Back up the ready blocks of `tokens` (whole blocks) that no colder tier has yet; returns at once."""
        headers = self._chains.headers(scope, tokens)
        missing = ~self._host.contains([header.key for header in headers])
        if not missing.any():
            return
        first = int(np.argmax(missing))
        lease = self._cache.acquire(np.append(tokens, np.int32(0)), scope)
        if lease.matched < len(tokens):
            headers = headers[: lease.matched // self._cache.block_size]
        if first >= len(headers):
            lease.release()
            return
        wanted = headers[first:]
        try:
            job = DeviceToHost(
                self._device,
                self._host,
                wanted,
                lease.blocks[first : len(headers)],
                self._lane,
                let_go=lambda _: lease.release(),
            )
            transfer = self._engine.submit(job, Priority.WRITE_BACK)
        except TransferRefusedError:
            return
        transfer.when_ended(lambda _: self._pass_on(wanted))

    def _pass_on(self, headers: list[BlockHeader]) -> None:
        for name, tier in self._colder.items():
            try:
                self._engine.submit(HostToTier(self._host, tier, name, headers), Priority.WRITE_BACK)
            except TransferRefusedError:
                log.debug("the way from host to %s is full; these blocks stay where they are", name)
