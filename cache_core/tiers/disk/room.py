"""Room on the disk: which segments go when there is too little, and what is known of the blocks that went."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import numpy as np

from cache_core.drop_reason import DropReason
from cache_core.ghosts import Ghosts
from cache_core.metrics import CacheObserver
from cache_core.tick_times import TickTimes
from cache_core.tiers.base import GoesOn, Mask, TierCounters, Watermarks
from cache_core.tiers.disk.catalog import Catalog
from cache_core.tiers.disk.index import DiskIndex, IndexDamagedError
from cache_core.tiers.disk.options import DiskOptions
from cache_core.tiers.disk.segment import Segment
from cache_core.tiers.disk.writer import Writer
from cache_core.tiers.files import reason_of

_T = TypeVar("_T")
_INDEX_SLACK = 1 << 20  # bytes the index may grow by before the next look at the budget


class AskIndex(Protocol):
    """Asks the index, whatever it is up to; `otherwise` holds where it fails."""

    def __call__(self, ask: Callable[[DiskIndex], _T], otherwise: _T) -> _T: ...


class DiskRoom:
    """Not locked, but for `sweep`: the tier's write lock is held around every other call that changes something.

    Args:
        repair: makes an index anew that is damaged.
    """

    def __init__(
        self,
        options: DiskOptions,
        catalog: Catalog,
        writer: Writer,
        ticks: TickTimes,
        counters: TierCounters,
        observer: CacheObserver,
        indexed: AskIndex,
        repair: Callable[[DiskIndex], None],
    ) -> None:
        self.changed = (
            True  # something may be dead in segments that was not when they were looked through last
        )
        self.bytes = options.capacity_bytes  # less when the disk turned out to be smaller
        self._options = options
        self._catalog = catalog
        self._writer = writer
        self._ticks = ticks
        self._counters = counters
        self._observer = observer
        self._indexed = indexed
        self._repair = repair
        self._index_slack = min(_INDEX_SLACK, options.capacity_bytes // 8)
        self._share = int(options.scope_share * options.capacity_bytes)
        self._lost = 0  # in segments that were used from then on, nothing is lost
        self._ghosts: Ghosts | None = None  # nothing was evicted yet

    def kept_since(self, moment: int) -> bool:
        """As `Tier.kept_since`."""
        return moment >= self._lost

    def evicted_lately(self, keys: Sequence[bytes]) -> Mask:
        """As `Tier.evicted_lately`."""
        return np.zeros(len(keys), dtype=np.bool_) if self._ghosts is None else self._ghosts.has(keys)

    def forget_evicted(self) -> None:
        """Nothing is known any more of what went."""
        self._ghosts = None

    def lose(self) -> None:
        """Something goes that was not used longest ago: of nothing it is certain any more that it is there."""
        self._lost = self._catalog.ticks + 1
        self.changed = True

    def is_full(self) -> None:
        """The disk took no more than there is now."""
        self.bytes = min(self.bytes, self._catalog.used_bytes())

    def make(self, needed: int) -> DropReason | None:
        """Drop what was used longest ago, of scopes over their share first, until `needed` bytes fit; says why not."""
        capacity = self._options.capacity_bytes
        while self._catalog.used_bytes() + needed > max(self.bytes - self._index_slack, needed):
            segment = self._catalog.next_to_go(self._share)
            if segment is None:
                break
            try:
                self._evict(segment)
            except OSError as error:
                return reason_of(error)
        # a disk that was full once may have room again
        self.bytes = min(capacity, self.bytes + self._options.segment_limit // 8)
        return None if self._catalog.used_bytes() + needed <= capacity else DropReason.TOO_LARGE

    def sweep(self, goes_on: GoesOn, marks: Watermarks, write: AbstractContextManager[object]) -> int:
        """Between the watermarks: drop segments as a write does that finds no room, one at a time; says bytes freed.

        The index does not count: it would not shrink. `write` is held around each.
        """
        capacity, freed = self._options.capacity_bytes, 0
        if self._catalog.segment_bytes() <= marks.start * capacity:
            return 0
        while goes_on():
            with write:
                segment = self._catalog.next_to_go(self._share)
                if segment is None or self._catalog.segment_bytes() <= marks.stop * capacity:
                    break
                try:
                    self._evict(segment)
                except OSError as error:
                    self._counters.drop(reason_of(error))
                    break
                freed += segment.size
        return freed

    def removed(self, segment: Segment) -> int:
        """Drop a segment, whoever needs it; says how many blocks went with it."""
        try:
            return self._catalog.drop(segment)
        except OSError as error:
            self._counters.drop(reason_of(error))
        except IndexDamagedError:
            self._repair(self._catalog.index)
        return 0

    def _evict(self, segment: Segment) -> None:
        """Drop a segment to make room.

        Raises:
            OSError: as `Catalog.drop`.
        """
        nothing: list[bytes] = []
        self._writer.seal([segment])
        keys = self._indexed(lambda index: index.keys_in(segment.number), nothing)
        self._lost = max(self._lost, segment.used + 1)
        self.changed = True  # what was dead in it counts no more
        try:
            blocks = self._catalog.drop(segment)
        except IndexDamagedError:
            self._repair(self._catalog.index)
            return
        self._counters.add(evicted=blocks)
        if blocks:
            self._observer.evicted("disk", "lru", blocks, self._ticks.age(segment.used))
        if keys and self._ghosts is None:
            self._ghosts = Ghosts(self._options.capacity_bytes * len(keys) // max(segment.size, 1))
        if self._ghosts is not None:
            self._ghosts.add(keys)
