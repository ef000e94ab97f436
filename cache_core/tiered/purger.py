"""Forgets a scope on every tier: out of sight at once, and the bytes as soon as each tier lets that happen."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from threading import Condition, Thread

from cache_core.metrics import TierName
from cache_core.prefix_cache import PrefixCache
from cache_core.tiered.fetches import Fetches
from cache_core.tiered.purges import Purges
from cache_core.tiers.base import Tier
from cache_core.tiers.errors import PurgeFailedError

log = logging.getLogger(__name__)

Forget = Callable[[str, bytes], int]  # (scope, identity's digest): forgets it in memory, says how many blocks


@dataclass(frozen=True, slots=True)
class Purged:
    """What became of a purge until it returned."""

    blocks: int  # that could be reached, on the tiers that have answered
    pending: tuple[
        TierName, ...
    ] = ()  # tiers that hang: nothing is served from there, the bytes go when they can


@dataclass(slots=True)
class _Purge:
    """One under way. Guarded by the purger's condition."""

    scope: str
    identity: bytes
    pending: list[TierName]  # tiers that have not answered
    blocks: int = 0
    errors: list[Exception] = field(default_factory=list)
    over: bool = False
    awaited: bool = True  # its caller is there and raises the errors


class Purger:
    """As long as some tier has not answered, its purged scopes are neither looked for nor stored below the device.

    Args:
        forget: forgets at once what lies in memory.
        colder: tiers that may hang. Each has a thread of its own, so that one does not hold up the others.
    """

    def __init__(
        self,
        cache: PrefixCache,
        forget: Forget,
        colder: Mapping[TierName, Tier],
        purges: Purges,
        fetches: Fetches,
    ) -> None:
        self._cache = cache
        self._forget = forget
        self._purges = purges
        self._fetches = fetches
        self._changed = Condition()
        self._queues: dict[TierName, SimpleQueue[_Purge | None]] = {name: SimpleQueue() for name in colder}
        self._threads = [
            Thread(target=self._run, args=(name, tier), name=f"kvgate {name} purges", daemon=True)
            for name, tier in colder.items()
        ]
        for thread in self._threads:
            thread.start()

    def purge(self, scope: str, identity: bytes, timeout: float) -> Purged:
        """Forget `scope`, whose identity's digest is given; waits that many seconds at most for tiers that hang.

        Raises:
            PurgeFailedError: some bytes could not be erased.
        """
        self._purges.begin(identity)
        purge = _Purge(scope, identity, list(self._queues))
        # First, so that what loads on has a lease that the cache's purge cuts off.
        self._fetches.forget(identity)
        self._tell(purge, lambda: self._cache.purge(scope))
        self._tell(purge, lambda: self._forget(scope, identity))
        for queue in self._queues.values():
            queue.put(purge)
        if not self._queues:
            self._finish(purge)
        with self._changed:
            purge.awaited = self._changed.wait_for(lambda: purge.over, timeout)
            purged = Purged(purge.blocks, tuple(purge.pending))
        if purge.awaited and purge.errors:
            raise _failure(purge)
        if purged.pending:
            names = ", ".join(purged.pending)
            log.warning("%s does not answer; what is purged there is erased when it does", names)
        return purged

    @property
    def idle(self) -> bool:
        """Whether every tier has forgotten what it was told to."""
        return self._purges.idle

    def close(self, timeout: float) -> None:
        """End the threads that do within that many seconds each."""
        for queue in self._queues.values():
            queue.put(None)
        for thread in self._threads:
            thread.join(timeout)

    def _run(self, name: TierName, tier: Tier) -> None:
        while (purge := self._queues[name].get()) is not None:
            self._tell(purge, partial(self._erased, tier, name, purge))
            with self._changed:
                purge.pending.remove(name)
                last = not purge.pending
            if last:
                self._finish(purge)

    def _erased(self, tier: Tier, name: TierName, purge: _Purge) -> int:
        self._purges.wait_stored(purge.identity, name)
        return tier.purge(purge.identity)

    def _tell(self, purge: _Purge, forget: Callable[[], int]) -> None:
        """Do a part of a purge, and note what came of it."""
        blocks, errors = 0, list[Exception]()
        try:
            blocks = forget()
        except Exception as error:  # noqa: BLE001  whatever it is, whoever purges is told
            errors.append(error)
        with self._changed:
            purge.blocks += blocks
            purge.errors += errors

    def _finish(self, purge: _Purge) -> None:
        # What was on its way up from a tier may have arrived since.
        self._tell(purge, lambda: self._forget(purge.scope, purge.identity))
        self._purges.end(purge.identity)
        with self._changed:
            purge.over = True
            unheard = bool(purge.errors) and not purge.awaited
            self._changed.notify_all()
        if unheard:
            log.error("a purge that took long failed: %s", _failure(purge))


def _failure(purge: _Purge) -> PurgeFailedError:
    return PurgeFailedError("; ".join(map(str, purge.errors)))
