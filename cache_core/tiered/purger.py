"""Forgets a scope on every tier: out of sight at once, and the bytes as soon as each tier lets that happen."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Condition

from cache_core.metrics import TierName
from cache_core.prefix_cache import PrefixCache
from cache_core.tiered.fetches import Fetches
from cache_core.tiered.purge_lane import MOST_WAITING, PurgeLane
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
        self._lanes: dict[TierName, PurgeLane[_Purge]] = {
            name: PurgeLane(name, tier.note_purge, partial(self._erase, name, tier))
            for name, tier in colder.items()
        }

    def purge(self, scope: str, identity: bytes, timeout: float) -> Purged:
        """Forget `scope`, whose identity's digest is given; waits that many seconds at most for tiers that hang.

        Raises:
            PurgeFailedError: some bytes could not be erased, or a tier that hangs has too much to erase already.
        """
        self._purges.begin(identity)
        purge = _Purge(scope, identity, list(self._lanes))
        # First, so that what loads on has a lease that the cache's purge cuts off.
        self._fetches.forget(identity)
        self._tell(purge, lambda: self._cache.purge(scope))
        self._tell(purge, lambda: self._forget(scope, identity))
        for name, lane in self._lanes.items():
            if not lane.put(identity, purge):
                self._ended(name, purge, error=_full(name))
        if not self._lanes:
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
        for lane in self._lanes.values():
            lane.close(timeout)

    def _erase(self, name: TierName, tier: Tier, identity: bytes, purges: Sequence[_Purge]) -> None:
        """On the tier's own thread: what these purges, all of one scope, ask of it is done once for all."""
        blocks, error = 0, None
        try:
            self._purges.wait_stored(identity, name)
            blocks = tier.purge(identity)
        except Exception as failure:  # noqa: BLE001  whatever it is, whoever purges is told
            error = failure
        for purge in purges:
            self._ended(name, purge, blocks, error)
            blocks = 0  # they are counted once

    def _ended(self, name: TierName, purge: _Purge, blocks: int = 0, error: Exception | None = None) -> None:
        """A tier has done its part, or could not."""
        with self._changed:
            purge.blocks += blocks
            purge.errors += [] if error is None else [error]
            purge.pending.remove(name)
            last = not purge.pending
        if last:
            self._finish(purge)

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


def _full(name: TierName) -> PurgeFailedError:
    return PurgeFailedError(
        f"{name} hangs, and {MOST_WAITING} purges wait for it already: purge again when it answers"
    )
