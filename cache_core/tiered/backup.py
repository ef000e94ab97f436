"""Copies of device blocks for colder tiers, parents first, in the background."""

import logging
from collections.abc import Sequence
from functools import partial
from queue import Full, Queue
from threading import Lock, Thread

import numpy as np
import torch

from cache_core.block_header import BlockHeader
from cache_core.block_pool import Blocks
from cache_core.metrics import TierName
from cache_core.prefix_cache import PrefixCache
from cache_core.tiered.chain import ScopeChains
from cache_core.tiered.purges import Purges
from cache_core.tiered.ways import Ways
from cache_core.tiers.base import Mask
from cache_core.tiers.host import NO_ROW
from cache_core.tokens import Tokens
from cache_core.transfer import Priority, TransferRefusedError
from cache_core.transfer.device_jobs import DeviceToHost
from cache_core.transfer.tier_jobs import HostToTier

log = logging.getLogger(__name__)

_MAX_WAITING = 256  # prefixes; of more, the newest are left for their next use


class Backup:
    """Writes ready prefixes through to the host tier and from there to the colder ones.

    A prefix is always copied from its first block that is missing on, so a child that is backed up has a backed-up
    parent. When a link is full, or a tier refused a block, the copy is left for the next time.
    """

    def __init__(self, cache: PrefixCache, chains: ScopeChains, ways: Ways, purges: Purges) -> None:
        self._cache = cache
        self._chains = chains
        self._ways = ways
        self._purges = purges
        self._last: tuple[str, Tokens, list[BlockHeader]] = ("", np.empty(0, dtype=np.int32), [])
        self._lock = Lock()
        self._on_their_way = 0  # prefixes that go on to colder tiers from the host, once they are there
        self._wanted: Queue[tuple[str, Tokens] | None] = Queue(_MAX_WAITING)
        self._thread = Thread(target=self._run, name="kvgate backup", daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Whether no prefix waits to be looked at, or to be passed on."""
        return not self._wanted.unfinished_tasks and not self._on_their_way

    def copy(self, scope: str, tokens: Tokens) -> None:
        """Back up the ready blocks of `tokens` (whole blocks) that a colder tier lacks; returns at once."""
        try:
            self._wanted.put_nowait((scope, tokens.copy()))
        except Full:
            log.debug("more prefixes wait to be copied than are looked at")

    def close(self, timeout: float) -> None:
        """Begin no more copies, and end the thread if it does within that many seconds."""
        try:
            self._wanted.put(None, timeout=timeout)
        except Full:
            return
        self._thread.join(timeout)

    def copy_now(self, scope: str, tokens: Tokens, blocks: Blocks) -> None:
        """Copy `blocks` (of `tokens`, from the root on) to the host before this returns, as far as it has room.

        For blocks that are about to be evicted. Where a parent found no room, its children are not copied.
        """
        number = self._purges.number(self._chains.digest(scope))
        if number is None:
            return
        headers = self._headers_again(scope, tokens)
        there = self._ways.host.contains([header.key for header in headers])
        first = len(headers) if there.all() else int(np.argmin(there))
        headers, blocks = headers[first:], blocks[first:]
        reservation = self._ways.host.reserve(headers)
        gaps = np.flatnonzero((reservation.rows == NO_ROW) & ~reservation.there)
        usable = np.arange(len(headers)) < (gaps[0] if len(gaps) else len(headers))
        wanted: Mask = usable & (reservation.rows != NO_ROW)
        arrived = np.zeros_like(wanted)
        try:
            self._read(blocks[wanted], reservation.rows[wanted])
            arrived = wanted
        finally:
            self._ways.host.publish(reservation, arrived)
        for name in self._ways.colder:
            copied = [header for header, there in zip(headers, wanted, strict=True) if there]
            self._pass_to(name, copied, number)

    def _headers_again(self, scope: str, tokens: Tokens) -> list[BlockHeader]:
        """The chain's, remembered, as a path is evicted bit by bit from its end. Under the cache's lock."""
        known_scope, known, headers = self._last
        if scope != known_scope or not np.array_equal(known[: len(tokens)], tokens):
            headers = self._chains.headers(scope, tokens)
            self._last = scope, tokens, headers
        return headers[: len(tokens) // self._cache.block_size]

    def _read(self, blocks: Blocks, rows: Blocks) -> None:
        arena = torch.from_numpy(self._ways.host.rows)
        pending = self._ways.down.after_now(lambda: self._ways.device.read_blocks(blocks, arena, rows))()
        if pending is not None:
            pending.wait()

    # On the thread.

    def _run(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            try:
                self._copy(*wanted)
            except Exception:
                log.exception("a prefix could not be copied to colder tiers")
            finally:
                self._wanted.task_done()
        self._wanted.task_done()

    def _copy(self, scope: str, tokens: Tokens) -> None:
        number = self._purges.number(self._chains.digest(scope))
        if number is None:
            return
        headers = self._chains.headers(scope, tokens)
        missing = ~self._ways.host.contains([header.key for header in headers])
        if missing.any():
            self._to_host(scope, tokens, headers, int(np.argmax(missing)), number)
        else:
            self._pass_on(headers, number)

    def _to_host(
        self, scope: str, tokens: Tokens, headers: list[BlockHeader], first: int, number: int
    ) -> None:
        lease = self._cache.hold(tokens, scope)
        ready = headers[: lease.matched // self._cache.block_size]
        if first >= len(ready):
            lease.release()
            return
        try:
            job = DeviceToHost(
                self._ways.device,
                self._ways.host,
                ready[first:],
                lease.blocks[first:],
                self._ways.down,
                let_go=lambda _: lease.release(),
            )
        except BaseException:
            lease.release()
            raise
        if self._purges.number(ready[0].identity) != number:
            job.finish(False)  # what it has was there before the purge
            return
        try:
            transfer = self._ways.engine.submit(job, Priority.WRITE_BACK)
        except TransferRefusedError:
            return
        self._count(1)
        transfer.when_ended(lambda _: self._arrived(ready, number))

    def _arrived(self, headers: list[BlockHeader], number: int) -> None:
        try:
            self._pass_on(headers, number)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self._on_their_way += change

    def _pass_on(self, headers: Sequence[BlockHeader], number: int) -> None:
        """From the host to every colder tier, what that one lacks."""
        for name, tier in self._ways.colder.items():
            missing = ~tier.contains([header.key for header in headers])
            self._pass_to(
                name, [header for header, lacks in zip(headers, missing, strict=True) if lacks], number
            )

    def _pass_to(self, name: TierName, headers: list[BlockHeader], number: int) -> None:
        if not headers:
            return
        allowed = partial(self._purges.storing, headers[0].identity, number)
        tier = self._ways.colder[name]
        try:
            job = HostToTier(self._ways.host, tier, name, headers, allowed=allowed)
            self._ways.engine.submit(job, Priority.WRITE_BACK)
        except TransferRefusedError:
            log.debug("the way from host to %s is full; these blocks stay where they are", name)
