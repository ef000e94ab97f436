"""The fetches under way, and a thread that ends the wait for those that are late."""

import logging
from collections.abc import Callable
from threading import Condition, Thread
from typing import Protocol

from cache_core.lease import Lease
from cache_core.tiered.fetch import Fetch
from cache_core.transfer.clock import Clock

log = logging.getLogger(__name__)


class Waited(Protocol):
    """Something that comes up, for which requests wait until its deadline."""

    @property
    def identity(self) -> bytes:
        """Digest [32] of the scope it belongs to."""
        ...

    @property
    def deadline(self) -> float:
        """On the engine's clock, in seconds."""
        ...

    def give_up(self) -> bool:
        """Nobody waits for it any more; False: it is over already."""
        ...


class Fetches:
    """A link notices a deadline between two pieces only; with a disk that hangs in one, nobody else would.

    Args:
        over: called after one ended or missed its deadline, on whichever thread.
    """

    def __init__(self, clock: Clock, over: Callable[[], None]) -> None:
        self._clock = clock
        self._over = over
        self._changed = Condition()
        self._running: dict[Waited, float] = {}  # with the moment at which each is late; inf: it was told
        self._closed = False
        self._thread = Thread(target=self._run, name="kvgate fetch deadlines", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._running)

    def add(self, fetch: Waited) -> None:
        """It begins."""
        with self._changed:
            self._running[fetch] = fetch.deadline
            self._changed.notify_all()

    def changed(self) -> None:
        """Who waits should look again."""
        self._over()

    def ended(self, fetch: Waited) -> None:
        """It is over."""
        with self._changed:
            self._running.pop(fetch, None)
        self._over()

    def with_lease(self, lease: Lease) -> Fetch | None:
        """The one under way that brings up what this lease announces; None: none does."""
        with self._changed:
            fetches = (fetch for fetch in self._running if isinstance(fetch, Fetch))
            return next((fetch for fetch in fetches if fetch.lease is lease), None)

    def forget(self, identity: bytes | None) -> None:
        """Give up all that belongs to a scope; None: to any."""
        with self._changed:
            ours = [one for one in self._running if identity is None or one.identity == identity]
        for one in ours:
            one.give_up()

    def close(self) -> None:
        """End every wait, and the thread."""
        with self._changed:
            self._closed = True
            running = list(self._running)
            self._changed.notify_all()
        for fetch in running:
            fetch.give_up()
        self._thread.join()

    def _run(self) -> None:
        while (late := self._next()) is not None:
            for fetch in late:
                try:
                    if fetch.give_up():
                        self._over()
                except Exception:
                    log.exception("a late fetch could not be ended")

    def _next(self) -> list[Waited] | None:
        """Those that are late now, once; None: closed."""
        with self._changed:
            while not self._closed:
                now = self._clock.now()
                late = [fetch for fetch, at in self._running.items() if at <= now]
                if late:
                    self._running.update(dict.fromkeys(late, float("inf")))
                    return late
                first = min(self._running.values(), default=float("inf"))
                self._clock.wait(self._changed, None if first == float("inf") else first - now)
            return None
