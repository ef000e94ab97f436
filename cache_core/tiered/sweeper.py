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
        """Demote down to the lower watermark, if the upper one is passed, while nobody works; blocks freed."""
        freed = 0
        if self._used() <= self._marks.start:
            return 0
        while self._used() > self._marks.stop and not self._busy() and not self._ended.is_set():
            gone = self._tiers.demote(self._batch)
            if not gone:
                break
            freed += gone
        return freed

    def compact(self) -> None:
        """Move device blocks together, while nobody works."""
        while (
            not self._busy() and not self._ended.is_set() and self._tiers.cache.compact(self._batch // 2 or 1)
        ):
            pass

    def close(self) -> None:
        """End the thread; one that cleans a disk that hangs is left to itself after some seconds."""
        self._ended.set()
        self._thread.join(_CLOSING)

    def _used(self) -> float:
        stats = self._tiers.cache.stats()
        return 1.0 - stats.free / stats.total

    def _clean(self) -> None:
        for tier in self._tiers.colder.values():
            if not self._ended.is_set():
                tier.clean()

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
