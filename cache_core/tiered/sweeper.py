"""Makes room on the device before it is needed, while nobody waits."""

import logging
import time
from collections.abc import Callable, Mapping
from threading import Event, Thread

from cache_core.metrics import TierName
from cache_core.tiered.tiered_cache import TieredCache
from cache_core.tiers.base import Watermarks

log = logging.getLogger(__name__)

_CLOSING = 10.0  # seconds
_RESTS = (
    20.0  # times as long as a colder tier took to clean, it is left alone: a look at all of it may take long
)


class Sweeper:
    """A thread that demotes cold blocks, prunes dead ones, compacts device and host, and cleans colder tiers.

    Never on a request's path.

    Args:
        busy: whether the engine works now; then the sweeper lets go.
        watermarks: of every tier.
        apart: of single tiers, where they have others.
        batch: blocks that are demoted, or twice the blocks that are moved, before it looks at `busy` again.
        pause: seconds between two looks.
    """

    def __init__(
        self,
        tiers: TieredCache,
        busy: Callable[[], bool],
        watermarks: Watermarks | None = None,
        batch: int = 16,
        pause: float = 0.5,
        apart: Mapping[TierName, Watermarks] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tiers = tiers
        self._busy = busy
        self._marks = watermarks or Watermarks()
        self._apart = dict(apart or {})
        self._clock = clock
        self._rest_until: dict[TierName, float] = {}
        self._batch = batch
        self._pause = pause
        self._ended = Event()
        self._thread = Thread(target=self._run, name="kvgate-sweeper", daemon=True)
        self._thread.start()

    def sweep(self) -> int:
        """Demote down to the lower watermark, on device and host where the upper one is passed, while nobody works.

        From the device to the host, and from there to what lies below; says how many blocks were freed. Those tiers
        keep to their watermarks in `clean`. Dead branches go first, whatever is in use.
        """
        pruned = self._tiers.cache.prune() if self._goes_on() else 0
        device = self._sweep("device", self._used, self._tiers.demote)
        return pruned + device + self._sweep("host", self._host_used, self._tiers.sweep_host)

    def _sweep(self, tier: TierName, used: Callable[[], float], free: Callable[[int], int]) -> int:
        freed, marks = 0, self._marks_of(tier)
        if used() <= marks.start:
            return 0
        while used() > marks.stop and self._goes_on():
            gone = free(self._batch)
            if not gone:
                break
            freed += gone
        return freed

    def compact(self) -> None:
        """Move blocks of the device together, then those of the host, while nobody works."""
        for compact in (self._tiers.cache.compact, self._tiers.host.compact):
            while self._goes_on() and compact(self._batch // 2 or 1):
                pass

    def clean(self) -> None:
        """Clean colder tiers and keep them to their watermarks, while nobody works."""
        for name, tier in self._tiers.watched.items():
            began = self._clock()
            if began < self._rest_until.get(name, began) or not self._goes_on():
                continue
            tier.clean(self._goes_on, self._marks_of(name))
            ended = self._clock()
            self._rest_until[name] = ended + _RESTS * (ended - began)

    def close(self) -> None:
        """End the thread, if it does within some seconds."""
        self._ended.set()
        self._thread.join(_CLOSING)

    def _used(self) -> float:
        stats = self._tiers.cache.stats()
        return 1.0 - stats.free / stats.total

    def _host_used(self) -> float:
        stats = self._tiers.host.stats()
        return (stats.used_bytes or 0) / stats.capacity_bytes if stats.capacity_bytes else 0.0

    def _marks_of(self, tier: TierName) -> Watermarks:
        return self._apart.get(tier, self._marks)

    def _goes_on(self) -> bool:
        return not self._busy() and not self._ended.is_set()

    def _run(self) -> None:
        while not self._ended.wait(self._pause):
            if self._busy():
                continue
            try:
                if not self.sweep():
                    self.compact()
                    self.clean()
            except Exception:
                log.exception("a sweep failed")
