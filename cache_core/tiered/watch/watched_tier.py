"""A tier that may hang, as everybody in this cache sees it: nobody's thread is held longer than a limit."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from cache_core.block_header import BlockHeader
from cache_core.drop_reason import DropReason
from cache_core.metrics import CacheObserver, TierName
from cache_core.tiered.watch.calls import Calls
from cache_core.tiered.watch.limits import CallLimits
from cache_core.tiers.base import (
    FULL,
    BlockBytes,
    CallKind,
    GoesOn,
    Mask,
    Tier,
    TierStats,
    Watermarks,
    for_ever,
)
from cache_core.transfer.clock import Clock
from cache_core.transfer.job import Leavable

T = TypeVar("T")

_LEAST_PATIENCE = 0.1  # seconds that a question has, however late it comes


class WatchedTier(Tier):
    """What is asked of a tier that hangs, or is away, has the answer of a tier that has nothing.

    `get` and `put` go straight through: whoever moves bytes calls them inside `run`. Purges, clearing and closing do,
    too: they have to be done however long that takes, and who asks for them has threads for it.
    """

    def __init__(
        self, name: TierName, tier: Tier, limits: CallLimits, clock: Clock, observer: CacheObserver
    ) -> None:
        self.name: TierName = name
        self.tier = tier
        self._limits = limits
        self._clock = clock
        self._observer = observer
        self._calls = Calls(name, limits, clock, observer, self.probe, tier.set_aside)
        self._cleaning = False
        self._last_stats: TierStats | None = None

    def away(self, kind: CallKind) -> bool:
        return self._calls.away(kind)

    def run(self, kind: CallKind, work: Callable[[], None], blocks: int) -> Leavable | None:
        limit = self._limits.read if kind == "read" else self._limits.write
        call = self._calls.begin(kind, work, limit, blocks)
        if call is None:
            self._observer.dropped(self.name, DropReason.AWAY, blocks)
        return call

    # What is asked.

    def contains(self, keys: Sequence[bytes]) -> Mask:
        return self.ask(keys, None)

    def ask(self, keys: Sequence[bytes], within: float | None) -> Mask:
        nothing: Mask = np.zeros(len(keys), dtype=np.bool_)
        limit = self._limits.ask if within is None else min(self._limits.ask, max(within, _LEAST_PATIENCE))
        return self._asked(lambda: self.tier.contains(keys), nothing, limit)

    def stamp(self, keys: Sequence[bytes]) -> int | None:
        nothing: int | None = None
        return self._asked(lambda: self.tier.stamp(keys), nothing)

    def kept_since(self, moment: int) -> bool:
        return not self.away("read") and self.tier.kept_since(moment)

    def evicted_lately(self, keys: Sequence[bytes]) -> Mask:
        return self.tier.evicted_lately(keys)

    def delete(self, keys: Sequence[bytes]) -> int:
        return self._asked(lambda: self.tier.delete(keys), 0)

    def touch(self, keys: Sequence[bytes]) -> None:
        self._asked(lambda: self.tier.touch(keys), None)

    def stats(self) -> TierStats:
        """As every tier's; of one that hangs, what it said last."""
        self._last_stats = self._asked(self.tier.stats, self._last_stats)
        return self._last_stats or TierStats(None, None, 0, 0, 0, 0, None, 0, 0, {})

    def clean(self, goes_on: GoesOn = for_ever, marks: Watermarks = FULL) -> int:
        """As every tier's. One that gives no sign for too long is left alone, and no other one begun before its end."""
        if self._cleaning:
            return 0
        progress = _Progress(goes_on, self._clock)
        call = self._calls.begin("write", lambda: self._clean(progress, marks), self._limits.clean)
        if call is None:
            return 0
        while not call.wait(until := progress.last + self._limits.clean):
            if until == progress.last + self._limits.clean:
                progress.wanted = False
                call.leave()
                return 0
        return call.result()

    def _clean(self, progress: "_Progress", marks: Watermarks) -> int:
        self._cleaning = True
        try:
            return self.tier.clean(progress.goes_on, marks)
        finally:
            self._cleaning = False

    def _asked(self, question: Callable[[], T], otherwise: T, limit: float | None = None) -> T:
        call = self._calls.begin("read", question, self._limits.ask if limit is None else limit)
        if call is None:
            return otherwise
        if not call.wait(call.began + call.limit):
            call.leave()
            return otherwise
        return call.result()

    # What goes straight through.

    def put(self, headers: Sequence[BlockHeader], blocks: BlockBytes) -> Mask:
        return self.tier.put(headers, blocks)

    def get(self, headers: Sequence[BlockHeader], out: BlockBytes, timeout: float | None = None) -> Mask:
        return self.tier.get(headers, out, timeout)

    def probe(self) -> None:
        self.tier.probe()

    def note_purge(self, identity: bytes) -> None:
        self.tier.note_purge(identity)

    def purge(self, identity: bytes) -> int:
        return self.tier.purge(identity)

    def clear(self) -> int:
        return self.tier.clear()

    def close(self) -> None:
        """Make no more calls. The tier itself is closed by whoever opened it: that may hang."""
        self._calls.close()


class _Progress:
    """When a long work gave its last sign, and whether it is still wanted."""

    def __init__(self, goes_on: GoesOn, clock: Clock) -> None:
        self.wanted = True
        self._goes_on = goes_on
        self._clock = clock
        self.last = clock.now()

    def goes_on(self) -> bool:
        self.last = self._clock.now()
        return self.wanted and self._goes_on()
