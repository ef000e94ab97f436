"""One batch on its way, as whoever asked for it sees it."""

import logging
from collections.abc import Callable
from enum import IntEnum
from threading import Condition, Lock

from cache_core.errors import CacheError
from cache_core.metrics import Moved, Outcome
from cache_core.transfer.clock import Clock
from cache_core.transfer.job import Job

_NEVER = 1 << 62  # pieces

_log = logging.getLogger(__name__)


class TransferRefusedError(CacheError):
    """The link is closed, or its queue is full of work that is no less urgent."""


class Priority(IntEnum):
    """Who goes first on a link."""

    WAITING = 0  # a request stands still until this is there
    PREFETCH = 1
    WRITE_BACK = 2


class Transfer:
    """Made by `TransferEngine.submit`. Every method may be called from any thread.

    After False from a wait the caller recomputes instead, but cancels first: until then bytes may arrive.
    """

    def __init__(
        self, job: Job, priority: Priority, deadline: float | None, lock: Lock, clock: Clock
    ) -> None:
        self.job = job
        self.deadline = deadline  # by the clock; after it nothing more is begun
        self.priority = priority
        self.outcome: Outcome | None = None  # None: on its way
        self.error: Exception | None = None  # why it failed
        self._condition = Condition(
            lock
        )  # the link's lock; a condition of its own, so that only its waiters wake
        self._clock = clock
        self._callbacks: list[Callable[[Transfer], None]] = []
        # The link's, under its lock.
        self.submitted = clock.now()
        self.started: float | None = None
        self.issued = 0  # pieces
        self.completed = 0  # pieces
        self.moved_bytes = 0
        self.left_bytes = sum(piece.nbytes for piece in job.pieces)  # not begun
        self.stopping: Outcome | None = None
        self.wake_at = _NEVER  # completed pieces that some waiter waits for
        self.settling = False
        self.entry = 0  # number of its valid entry in the queue; 0: none
        self.stop: Callable[[Transfer, Outcome], None]  # set by the link
        self.requeue: Callable[[Transfer], None]

    @property
    def done(self) -> bool:
        """Whether all bytes are there; see `outcome` for what else may have become of it."""
        return self.outcome == "done"

    @property
    def ended(self) -> bool:
        """Whether nothing will be read or written any more, and everything is let go of."""
        return self.outcome is not None

    @property
    def idle(self) -> bool:
        """Whether no piece of it is at work. Under the link's lock."""
        return self.issued == self.completed

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all bytes are there; False: it ended otherwise, or the time or its deadline has passed."""
        return self._wait(_NEVER, timeout)

    def wait_layer(self, layer: int, timeout: float | None = None) -> bool:
        """Wait until one layer's bytes are there, so that it can be computed while the next ones come up.

        False as for `wait`.
        """
        ends = self.job.layer_ends
        return self._wait(ends[layer] if ends else _NEVER, timeout)

    def cancel(self, timeout: float | None = None) -> bool:
        """Stop it. True: nothing is read or written any more, and everything is let go of.

        False: a piece was still at work after `timeout`; source and destination stay pinned until it is not.
        Not from its own callback or its job's methods: it waits for them.
        """
        self.stop(self, "cancelled")
        with self._condition:
            return self._until(lambda: self.outcome is not None, _NEVER, timeout, None)

    def promote(self, priority: Priority) -> None:
        """Make it more urgent: a request waits now for what was fetched ahead."""
        with self._condition:
            if priority < self.priority:
                self.priority = priority
                self.requeue(self)

    def when_ended(self, callback: Callable[["Transfer"], None]) -> None:
        """Call it once when the transfer has ended, on whichever thread ends it; now, if it has."""
        with self._condition:
            if self.outcome is None:
                self._callbacks.append(callback)
                return
        callback(self)

    def _wait(self, pieces: int, timeout: float | None) -> bool:
        def there() -> bool:
            return self.outcome is not None or (self.stopping is None and self.completed >= pieces)

        with self._condition:
            in_time = self._until(there, pieces, timeout, self.deadline)
            if self.outcome is not None:
                return self.outcome == "done"
            if in_time:
                return True
            late = self.deadline is not None and self._clock.now() >= self.deadline
        if late:
            self.stop(self, "expired")
        return False

    def _until(
        self, true: Callable[[], bool], pieces: int, timeout: float | None, deadline: float | None
    ) -> bool:
        """Wait for what may become true when that many pieces are there, or at the end. Under the link's lock."""
        if timeout is not None:
            ends = self._clock.now() + timeout
            deadline = ends if deadline is None else min(ends, deadline)
        while not true():
            left = None if deadline is None else deadline - self._clock.now()
            if left is not None and left <= 0:
                return False
            self.wake_at = min(self.wake_at, pieces)
            self._clock.wait(self._condition, left)
        return True

    # The link's part.

    def piece_over(self, nbytes: int) -> None:
        """One more piece is over. Wakes only who waits for it: a waiter that wakes takes the lock from the link."""
        self.completed += 1
        self.moved_bytes += nbytes
        if self.completed >= self.wake_at:
            self.wake_at = _NEVER
            self._condition.notify_all()

    def end(self, outcome: Outcome) -> None:
        """It is over, and the job finished."""
        with self._condition:
            self.outcome = outcome
            callbacks, self._callbacks = self._callbacks, []
            self._condition.notify_all()
        for callback in callbacks:
            try:
                callback(self)
            except Exception:  # noqa: BLE001  whoever asked must not stop the link
                _log.exception("A callback of a transfer failed")

    def report(self, link: str, outcome: Outcome) -> Moved:
        """What observers are told."""
        now = self._clock.now()
        return Moved(
            link=link,
            source=self.job.source,
            target=self.job.target,
            priority=self.priority.name.lower(),
            outcome=outcome,
            moved_bytes=self.moved_bytes,
            queued=None if self.started is None else self.started - self.submitted,
            seconds=None if self.started is None else now - self.started,
        )
