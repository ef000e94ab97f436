"""Questions to colder tiers about what is copied to them: on a thread for each tier, since it may hang."""

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from queue import Full, Queue
from threading import Thread

from cache_core.metrics import TierName

log = logging.getLogger(__name__)

_MAX_WAITING = 256  # for one tier; of more, the newest are left for their next use

Work = Callable[[], None]


class BackupLanes:
    """While one tier hangs, the host and the other tiers get their copies all the same."""

    def __init__(self, tiers: Collection[TierName]) -> None:
        self._lanes = {name: _Lane(name) for name in tiers}

    @property
    def idle(self) -> bool:
        """Whether nothing waits for any tier."""
        return all(lane.idle for lane in self._lanes.values())

    def put(self, name: TierName, work: Work) -> None:
        """Do it when it is its turn; not at all if too much waits for that tier already."""
        self._lanes[name].put(work)

    def close(self, timeout: float) -> None:
        """Begin nothing more, and end the threads that do within that many seconds each."""
        for lane in self._lanes.values():
            lane.close(timeout)


class _Lane:
    def __init__(self, name: TierName) -> None:
        self._name = name
        self._closed = False
        self._queue: Queue[Work | None] = Queue(_MAX_WAITING)
        self._thread = Thread(target=self._run, name=f"kvgate {name} backup", daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        return not self._queue.unfinished_tasks

    def put(self, work: Work) -> None:
        try:
            self._queue.put_nowait(work)
        except Full:
            log.debug("more waits to be copied to the %s tier than it answers for", self._name)

    def close(self, timeout: float) -> None:
        self._closed = True
        with suppress(Full):  # then it sees that it is closed
            self._queue.put_nowait(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while self._next():
            pass

    def _next(self) -> bool:
        """Holds nothing of what is done. False: it is closed."""
        work = self._queue.get()
        try:
            if work is not None and not self._closed:
                work()
        except Exception:
            log.exception("what the %s tier lacks could not be copied", self._name)
        finally:
            self._queue.task_done()
        return not self._closed
