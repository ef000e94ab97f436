"""Copies of states for colder tiers: behind their KV, never before it."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Lock

from cache_core.block_header import BlockHeader
from cache_core.metrics import TierName
from cache_core.state_groups import StateGroup, StateOnDevice
from cache_core.tiered.backup_lanes import BackupLanes
from cache_core.tiered.purges import Purges
from cache_core.tiered.ways import Ways
from cache_core.tiers.base import Tier
from cache_core.tiers.host import HostTier
from cache_core.transfer import Priority, TransferRefusedError
from cache_core.transfer.state_jobs import StateToHost
from cache_core.transfer.tier_jobs import HostToTier

log = logging.getLogger(__name__)

_MOST_MOVING = 16  # states that stay on the device for it, evicted or not; more are left for their next use


class StateBackup:
    """A state goes into a tier when the KV of all blocks before its boundary is below the device, and into a colder
    one when that one has them all: alone it would be of no use after a restart.

    Args:
        rows: host memory for states; `ways.host` has the KV.
    """

    def __init__(
        self, ways: Ways, rows: HostTier, purges: Purges, group: StateGroup, lanes: BackupLanes
    ) -> None:
        self._ways = ways
        self._lanes = lanes
        self._rows = rows
        self._purges = purges
        self._group = group
        self._lock = Lock()
        self._on_their_way = 0

    @property
    def idle(self) -> bool:
        """Whether no state is between two tiers."""
        return not self._on_their_way

    def copy(self, chain: Sequence[BlockHeader], state: StateOnDevice, number: int) -> None:
        """Copy `state`, which stands behind the blocks of `chain`; returns at once.

        `number` is that of its scope's last purge, asked for before the state was.
        """
        lacking = self._lacking(self._ways.host, chain)
        if not lacking:
            self._copy(chain, state, number)
            return
        for name, tier in self._ways.colder.items():
            self._lanes.put(name, partial(self._copy_behind, tier, lacking, chain, state, number))

    def _copy_behind(
        self,
        tier: Tier,
        lacking: Sequence[BlockHeader],
        chain: Sequence[BlockHeader],
        state: StateOnDevice,
        number: int,
    ) -> None:
        if self._lacking(tier, lacking):
            log.debug("a state is not copied, as not all of its KV was")
        else:
            self._copy(chain, state, number)

    def _copy(self, chain: Sequence[BlockHeader], state: StateOnDevice, number: int) -> None:
        header = replace(chain[-1], group=self._group)
        if self._rows.contains([header.key])[0]:
            self._pass_on(chain, header, number)
            return
        if self._on_their_way >= _MOST_MOVING:
            log.debug("more states are to be copied than the way to the host takes")
            return
        job = StateToHost(self._rows, header, state, self._ways.down)
        if self._purges.number(header.identity) != number:
            job.finish(False)  # it was there before the purge
            return
        try:
            transfer = self._ways.engine.submit(job, Priority.WRITE_BACK)
        except TransferRefusedError:
            return
        self._count(1)
        transfer.when_ended(lambda _: self._arrived(chain, header, number))

    def _arrived(self, chain: Sequence[BlockHeader], header: BlockHeader, number: int) -> None:
        try:
            self._pass_on(chain, header, number)
        finally:
            self._count(-1)

    def _pass_on(self, chain: Sequence[BlockHeader], header: BlockHeader, number: int) -> None:
        for name, tier in self._ways.colder.items():
            self._lanes.put(name, partial(self._pass_to, name, tier, chain, header, number))

    def _pass_to(
        self, name: TierName, tier: Tier, chain: Sequence[BlockHeader], header: BlockHeader, number: int
    ) -> None:
        if tier.away("write") or tier.contains([header.key])[0]:
            return
        allowed = partial(self._storing, name, tier, chain, number)
        try:
            # Behind the KV, which was queued on the same link before.
            job = HostToTier(self._rows, tier, name, [header], allowed=allowed)
            self._ways.engine.submit(job, Priority.WRITE_BACK)
        except TransferRefusedError:
            log.debug("the way from host to %s is full; this state stays where it is", name)

    @contextmanager
    def _storing(
        self, name: TierName, tier: Tier, chain: Sequence[BlockHeader], number: int
    ) -> Iterator[bool]:
        with self._purges.storing(chain[-1].identity, number, name) as allowed:
            yield allowed and bool(tier.contains([header.key for header in chain]).all())

    @staticmethod
    def _lacking(tier: Tier, chain: Sequence[BlockHeader]) -> list[BlockHeader]:
        there = tier.contains([header.key for header in chain])
        return [header for header, has in zip(chain, there, strict=True) if not has]

    def _count(self, change: int) -> None:
        with self._lock:
            self._on_their_way += change
