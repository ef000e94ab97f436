"""Copies of device blocks for colder tiers, parents first, in the background."""

import logging

import numpy as np
import torch

from cache_core.block_header import BlockHeader
from cache_core.block_pool import Blocks
from cache_core.prefix_cache import PrefixCache
from cache_core.tiered.chain import ScopeChains
from cache_core.tiered.ways import Ways
from cache_core.tiers.base import Mask
from cache_core.tiers.host import NO_ROW
from cache_core.tokens import Tokens
from cache_core.transfer import Priority, TransferRefusedError
from cache_core.transfer.device_jobs import DeviceToHost
from cache_core.transfer.tier_jobs import HostToTier

log = logging.getLogger(__name__)


class Backup:
    """Writes ready prefixes through to the host tier and from there to the colder ones.

    A prefix is always copied from its first block that is missing on, so a child that is backed up has a backed-up
    parent. When a link is full the copy is left for the next time.
    """

    def __init__(self, cache: PrefixCache, chains: ScopeChains, ways: Ways) -> None:
        self._cache = cache
        self._chains = chains
        self._ways = ways

    def copy(self, scope: str, tokens: Tokens) -> None:
        """Back up the ready blocks of `tokens` (whole blocks) that no colder tier has yet; returns at once."""
        headers = self._chains.headers(scope, tokens)
        missing = ~self._ways.host.contains([header.key for header in headers])
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
                self._ways.device,
                self._ways.host,
                wanted,
                lease.blocks[first : len(headers)],
                self._ways.down,
                let_go=lambda _: lease.release(),
            )
            transfer = self._ways.engine.submit(job, Priority.WRITE_BACK)
        except TransferRefusedError:
            return
        transfer.when_ended(lambda _: self._pass_on(wanted))

    def copy_now(self, scope: str, tokens: Tokens, blocks: Blocks) -> None:
        """Copy `blocks` (of `tokens`, from the root on) to the host before this returns, as far as it has room.

        For blocks that are about to be evicted. Where a parent found no room, its children are not copied.
        """
        headers = self._chains.headers(scope, tokens)
        reservation = self._ways.host.reserve(headers)
        gaps = np.flatnonzero((reservation.rows == NO_ROW) & ~reservation.there)
        usable = np.arange(len(headers)) < (gaps[0] if len(gaps) else len(headers))
        wanted: Mask = usable & (reservation.rows != NO_ROW)
        try:
            arena = torch.from_numpy(self._ways.host.rows)
            self._ways.device.read_blocks(blocks[wanted], arena, reservation.rows[wanted])
        except Exception:
            log.exception("blocks could not be copied before they were evicted")
            wanted[:] = False
        self._ways.host.publish(reservation, wanted)
        self._pass_on([header for header, copied in zip(headers, wanted, strict=True) if copied])

    def _pass_on(self, headers: list[BlockHeader]) -> None:
        if not headers:
            return
        for name, tier in self._ways.colder.items():
            try:
                self._ways.engine.submit(
                    HostToTier(self._ways.host, tier, name, headers), Priority.WRITE_BACK
                )
            except TransferRefusedError:
                log.debug("the way from host to %s is full; these blocks stay where they are", name)
