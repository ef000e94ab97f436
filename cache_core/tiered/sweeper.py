"""Makes room on the device before it is needed, while nobody waits."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread

from cache_core.tiered.tiered_cache import TieredCache

log = logging.getLogger(__name__)

_CLOSING = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Shares of a tier that are in use: sweeping starts above `start` and ends below `stop`."""

    start: float = 0.85
    stop: float = 0.70


class Sweeper:
    """A thread that demotes cold blocks, compacts the device's and cleans colder tiers; never on a request's path.

    Args:
        busy: whether the engine works now; then the sweeper lets go.
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
    ) -> None:
        self._tiers = tiers
        self._busy = busy
        self._marks = watermarks or Watermarks()
        self._batch = batch
        self._pause = pause
        self._ended = Event()
        self._thread = Thread(target=self._run, name="kvgate-sweeper", daemon=True)
        self._thread.start()

    def sweep(self) -> int:
        """Demote down to the lower watermark, on every tier where the upper one is passed, while nobody works.

        From the device to the host, and from there to what lies below; says how many blocks were freed. Colder tiers
        keep to their sizes when they write, and clean up in `Tier.clean`.
        """
        return self._sweep(self._used, self._tiers.demote) + self._sweep(
            self._host_used, self._tiers.sweep_host
        )

    def _sweep(self, used: Callable[[], float], free: Callable[[int], int]) -> int:
        freed = 0
        if used() <= self._marks.start:
            return 0
        while used() > self._marks.stop and self._goes_on():
            gone = free(self._batch)
            if not gone:
                break
            freed += gone
        return freed

    def compact(self) -> None:
        """Move device blocks together, while nobody works."""
        while self._goes_on() and self._tiers.cache.compact(self._batch // 2 or 1):
            pass

    def close(self) -> None:
        """End the thread; one that cleans a disk that hangs is left to itself after some seconds."""
        self._ended.set()
        self._thread.join(_CLOSING)

    def _used(self) -> float:
        stats = self._tiers.cache.stats()
        return 1.0 - stats.free / stats.total

    def _host_used(self) -> float:
        stats = self._tiers.host.stats()
        return (stats.used_bytes or 0) / stats.capacity_bytes if stats.capacity_bytes else 0.0

    def _clean(self) -> None:
        for tier in self._tiers.colder.values():
            tier.clean(self._goes_on)

    def _goes_on(self) -> bool:
        return not self._busy() and not self._ended.is_set()

    def _run(self) -> None:
        while not self._ended.wait(self._pause):
            if self._busy():
                continue
            try:
                if not self.sweep():
                    self.compact()
                    self._clean()
            except Exception:
                log.exception("a sweep failed")
