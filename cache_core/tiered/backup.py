"""Copies of device blocks for colder tiers, parents first, in the background."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from queue import Full, Queue
from threading import Lock, Thread
from weakref import WeakSet

import numpy as np
import torch

from cache_core.block_header import BlockHeader
from cache_core.block_pool import Blocks
from cache_core.ghosts import RecentHashes, of_chain
from cache_core.metrics import TierName
from cache_core.prefix_cache import PrefixCache
from cache_core.residency import BITS
from cache_core.state_groups import StateOnDevice
from cache_core.tiered.backup_lanes import BackupLanes
from cache_core.tiered.chain import ScopeChains
from cache_core.tiered.purges import Purges
from cache_core.tiered.state_tiers import StateTiers
from cache_core.tiered.ways import Ways
from cache_core.tiers.base import Mask, Tier
from cache_core.tiers.host import NO_ROW
from cache_core.tokens import Tokens
from cache_core.transfer import Priority, Transfer, TransferRefusedError
from cache_core.transfer.device_jobs import DeviceToHost
from cache_core.transfer.tier_jobs import HostToTier

log = logging.getLogger(__name__)

_MAX_WAITING = 256  # prefixes; of more, the newest are left for their next use
# Blocks of which it is remembered that they were used, in capacities of device and host together: of more, those that
# come back push out of a small host what comes back sooner.
_USES = 1
_MAX_LEAVING = 4  # states that stay on the device, though evicted, until they are copied
Ended = Callable[[Transfer], None]

_NOTHING: tuple[bytes, Tokens, list[BlockHeader]] = (b"", np.empty(0, dtype=np.int32), [])


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A prefix to be copied, and of a hybrid model which states go with it."""

    scope: str
    tokens: Tokens
    every_state: bool = False  # along it; False: the one behind its end
    used_before: bool = False  # only as far as its blocks were in use before this time
    to_copy: bool = True  # False: only where it is below the device is to be found out
    leaving: StateOnDevice | None = None  # that one, where the device has just dropped it
    number: int | None = None  # of its scope's last purge, when it was dropped

    def states(self, tiers: StateTiers, length: int) -> Sequence[StateOnDevice]:
        """What of them there is now, behind at most `length` tokens."""
        found = tiers.device.along(self.tokens[:length], self.scope)
        if not self.every_state:
            found = [state for state in found if state.length == len(self.tokens)]
        return found or ([self.leaving] if self.leaving is not None and length >= self.leaving.length else [])


class Backup:
    """Writes ready prefixes through to the host tier and from there to the colder ones.

    A block's second use counts though it was evicted after the first one, as far as that is remembered.
    A prefix is always copied from its first block that is missing on, so a child that is backed up has a backed-up
    parent. When a link is full, or a tier refused a block, the copy is left for the next time.
    """

    def __init__(
        self,
        cache: PrefixCache,
        chains: ScopeChains,
        ways: Ways,
        purges: Purges,
        lanes: BackupLanes,
        states: StateTiers | None = None,
    ) -> None:
        self._cache = cache
        self._lanes = lanes
        self._states = states
        self._chains = chains
        self._ways = ways
        self._purges = purges
        self._last = _NOTHING
        self._uses = RecentHashes(_USES * (cache.stats().total + ways.host.num_blocks))
        self._lock = Lock()
        self._leaving: WeakSet[StateOnDevice] = WeakSet()  # those that somebody still holds
        self._on_their_way = 0  # prefixes that go on to colder tiers from the host, once they are there
        self._wanted: Queue[_Wanted | None] = Queue(_MAX_WAITING)
        self._thread = Thread(target=self._run, name="kvgate backup", daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Whether no prefix waits to be looked at, or to be passed on."""
        return not self._wanted.unfinished_tasks and not self._on_their_way and self._lanes.idle

    def copy(self, scope: str, tokens: Tokens, every_state: bool = False) -> None:
        """Back up the ready blocks of `tokens` (whole blocks) that a colder tier lacks; returns at once.

        Of a hybrid model the state behind them goes along, or every one on the way there.
        """
        self._put(_Wanted(scope, tokens.copy(), every_state))

    def copy_second_use(self, scope: str, tokens: Tokens) -> None:
        """The same for as many of the leading blocks as were used before, cached since or not; all are used now."""
        self._put(_Wanted(scope, tokens.copy(), every_state=True, used_before=True))

    def note(self, scope: str, tokens: Tokens) -> None:
        """Copy nothing, but let the index know which tiers have the ready blocks of `tokens`; returns at once."""
        self._put(_Wanted(scope, tokens.copy(), to_copy=False))

    def copy_leaving(self, scope: str, tokens: Tokens, state: StateOnDevice) -> None:
        """The same for a state that the device evicts, behind its KV; not if too many are on their way already."""
        with self._lock:
            if len(self._leaving) >= _MAX_LEAVING:
                log.debug("more states are evicted than can be copied")
                return
            self._leaving.add(state)
        number = self._purges.number(self._chains.digest(scope))
        self._put(_Wanted(scope, tokens.copy(), leaving=state, number=number))

    def _put(self, wanted: _Wanted) -> None:
        try:
            self._wanted.put_nowait(wanted)
        except Full:
            log.debug("more prefixes wait to be copied than are looked at")

    def forget(self, identity: bytes | None) -> None:
        """Nothing is remembered of the prompts of a scope, by its identity's digest; None: of any's."""
        if identity is None or self._last[0] == identity:
            self._last = _NOTHING
        with self._lock:
            self._uses.clear()

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
        identity = self._chains.digest(scope)
        number = self._purges.number(identity)
        if number is None:
            return
        path = self._headers_again(scope, identity, tokens)
        there = self._ways.host.contains([header.key for header in path])
        first = len(path) if there.all() else int(np.argmin(there))
        headers, blocks = path[first:], blocks[first:]
        reservation = self._ways.host.reserve(headers)
        now = self._purges.number(headers[0].identity) if headers else None
        gaps = np.flatnonzero((reservation.rows == NO_ROW) & ~reservation.there)
        usable = np.arange(len(headers)) < (gaps[0] if len(gaps) else len(headers))
        wanted: Mask = usable & (reservation.rows != NO_ROW)
        arrived = np.zeros_like(wanted)
        try:
            if now == number:  # else these headers may say more than is true of the bytes
                self._read(blocks[wanted], reservation.rows[wanted])
                arrived = wanted
        finally:
            self._ways.host.publish(reservation, arrived)
        for name in self._ways.colder:
            copied = [header for header, there in zip(headers, arrived, strict=True) if there]
            self.pass_to(name, copied, number)

    def _headers_again(self, scope: str, identity: bytes, tokens: Tokens) -> list[BlockHeader]:
        """The chain's, remembered, as a path is evicted bit by bit from its end. Under the cache's lock."""
        known_identity, known, headers = self._last
        if identity != known_identity or not np.array_equal(known[: len(tokens)], tokens):
            headers = self._chains.headers(scope, tokens)
            self._last = headers[0].identity, tokens, headers
            if self._states is not None:
                self.copy(scope, tokens, every_state=True)  # they cool down with their KV
        return headers[: len(tokens) // self._cache.block_size]

    def _read(self, blocks: Blocks, rows: Blocks) -> None:
        arena = torch.from_numpy(self._ways.host.rows)
        pending = self._ways.down.after_now(lambda: self._ways.device.read_blocks(blocks, arena, rows))()
        if pending is not None:
            pending.wait()

    # On the thread.

    def _run(self) -> None:
        while self._copy_next():
            pass

    def _copy_next(self) -> bool:
        """Holds nothing of a prefix once it is looked at. False: that was the last one."""
        wanted = self._wanted.get()
        try:
            if wanted is not None:
                self._copy(wanted)
        except Exception:
            log.exception("a prefix could not be copied to colder tiers")
        finally:
            self._wanted.task_done()
        return wanted is not None

    def _copy(self, wanted: _Wanted) -> None:
        number = self._purges.number(self._chains.digest(wanted.scope))
        if number is None or (wanted.leaving is not None and wanted.number != number):
            return
        if wanted.used_before:
            wanted = self._second_use(wanted)
        if not len(wanted.tokens) or (self._states is None and self._lies_below(wanted)):
            return
        headers = self._chains.headers(wanted.scope, wanted.tokens)
        if not wanted.to_copy:
            self._note_every_block(wanted, headers, number)
            return
        if self._note("host", self._ways.host, wanted, headers, number):
            self._pass_on(wanted, headers, number)
            return
        missing = ~self._ways.host.contains([header.key for header in headers])
        if missing.any():
            self._to_host(wanted, headers, int(np.argmax(missing)), number)

    def _second_use(self, wanted: _Wanted) -> _Wanted:
        """What of it was used before."""
        chain = self._chains.prompt(wanted.scope, wanted.tokens)
        chain.hash_to(chain.blocks)
        self._chains.remember(chain)
        hashes = of_chain(chain.hashes)
        known = self._uses.has(hashes)
        with self._lock:
            self._uses.add(hashes[~known])
        blocks = chain.blocks if known.all() else int(np.argmin(known))
        return replace(wanted, tokens=wanted.tokens[: blocks * self._cache.block_size])

    def _lies_below(self, wanted: _Wanted) -> bool:
        """Whether every tier is known to have it, without asking them."""
        bits = self._cache.residency(wanted.tokens, wanted.scope)
        tiers = BITS["host"] | sum(BITS[name] for name in self._ways.colder)
        ready = len(bits) * self._cache.block_size == len(wanted.tokens)
        return ready and bool((bits & tiers == tiers).all())

    def _note(
        self, name: TierName, tier: Tier, wanted: _Wanted, headers: Sequence[BlockHeader], number: int
    ) -> bool:
        """Let the index know that a tier has all these leading blocks; False: it has not, or cannot tell."""
        moment = tier.stamp([header.key for header in headers])
        if moment is None:
            return False
        if (
            self._purges.number(headers[0].identity) == number
        ):  # else the index may have others of these tokens
            tokens = wanted.tokens[: len(headers) * self._cache.block_size]
            self._cache.found_below(tokens, wanted.scope, name, moment)
        return True

    def _note_every_block(self, wanted: _Wanted, headers: Sequence[BlockHeader], number: int) -> None:
        self._note_blocks("host", self._ways.host, wanted, headers, number)
        for name, tier in self._ways.colder.items():
            self._lanes.put(name, partial(self._note_blocks, name, tier, wanted, headers, number))

    def _note_blocks(
        self, name: TierName, tier: Tier, wanted: _Wanted, headers: Sequence[BlockHeader], number: int
    ) -> None:
        """Let the index know which of these leading blocks a tier has."""
        keys = [header.key for header in headers]
        there = np.concatenate(([False], tier.contains(keys), [False]))
        for first, last in np.flatnonzero(there[1:] != there[:-1]).reshape(-1, 2).tolist():
            moment = tier.stamp(keys[first:last])
            if moment is not None and self._purges.number(headers[0].identity) == number:
                self._cache.found_below(wanted.tokens, wanted.scope, name, moment, first, last)

    def _to_host(self, wanted: _Wanted, headers: list[BlockHeader], first: int, number: int) -> None:
        lease = self._cache.hold(wanted.tokens, wanted.scope)
        ready = headers[: lease.matched // self._cache.block_size]
        if first >= len(ready):
            lease.release()
            self._copy_states(wanted, headers, number)
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
        transfer.when_ended(lambda _: self._arrived(wanted, ready, number))

    def _arrived(self, wanted: _Wanted, headers: list[BlockHeader], number: int) -> None:
        try:
            self._note("host", self._ways.host, wanted, headers, number)
            self._pass_on(wanted, headers, number)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self._on_their_way += change

    def _pass_on(self, wanted: _Wanted, headers: Sequence[BlockHeader], number: int) -> None:
        """From the host to every colder tier, what that one lacks; states behind their KV."""
        for name, tier in self._ways.colder.items():
            self._lanes.put(name, partial(self._pass_lacking, name, tier, wanted, headers, number))
        self._copy_states(wanted, headers, number)

    def _pass_lacking(
        self, name: TierName, tier: Tier, wanted: _Wanted, headers: Sequence[BlockHeader], number: int
    ) -> None:
        if tier.away("write") or self._note(name, tier, wanted, headers, number):
            return
        missing = ~tier.contains([header.key for header in headers])
        # What comes now must not outlive what lies before it.
        tier.touch([header.key for header, lacks in zip(headers, missing, strict=True) if not lacks])
        lacking = [header for header, lacks in zip(headers, missing, strict=True) if lacks]
        self.pass_to(name, lacking, number, partial(self._passed, name, tier, wanted, headers, number))

    def _passed(
        self,
        name: TierName,
        tier: Tier,
        wanted: _Wanted,
        headers: Sequence[BlockHeader],
        number: int,
        _: Transfer,
    ) -> None:
        self._note(name, tier, wanted, headers, number)

    def _copy_states(self, wanted: _Wanted, headers: Sequence[BlockHeader], number: int) -> None:
        if self._states is None:
            return
        size = self._cache.block_size
        for state in wanted.states(self._states, len(headers) * size):
            self._states.backup.copy(headers[: state.length // size], state, number)

    def pass_to(
        self, name: TierName, headers: Sequence[BlockHeader], number: int, ended: Ended = lambda _: None
    ) -> None:
        """Blocks of one scope, parents first, from the host to a colder tier; `number` is of the scope's last purge."""
        tier = self._ways.colder[name]
        if not headers or tier.away("write"):
            return
        allowed = partial(self._purges.storing, headers[0].identity, number, name)
        try:
            job = HostToTier(self._ways.host, tier, name, headers, allowed=allowed)
            self._ways.engine.submit(job, Priority.WRITE_BACK).when_ended(ended)
        except TransferRefusedError:
            log.debug("the way from host to %s is full; these blocks stay where they are", name)
