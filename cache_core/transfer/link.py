"""One direction between two tiers: a queue by urgency, a bandwidth budget, and the threads that move bytes."""

import heapq
import logging
from collections import deque
from dataclasses import dataclass
from threading import Condition, Lock, Thread
from time import monotonic

from cache_core.metrics import CacheObserver, Outcome
from cache_core.transfer.clock import Clock
from cache_core.transfer.job import Job, Leavable, Pending, Piece
from cache_core.transfer.token_bucket import TokenBucket
from cache_core.transfer.transfer import Priority, Transfer, TransferRefusedError

_log = logging.getLogger(__name__)

_LEAST_PATIENCE = (
    0.5  # seconds that a piece has at least, however soon after its begin nobody wants it any more
)


@dataclass(frozen=True, slots=True)
class LinkConfig:
    """How one direction is used."""

    bandwidth: float | None = None  # bytes a second; None: as fast as it goes
    burst: float = 16 << 20  # bytes that may go at once after a pause
    workers: int = 1  # threads; pieces of one transfer never run side by side
    depth: int = 2  # pieces an accelerator may have in work for one thread
    max_queued: int = 256  # transfers that have not ended

    def __post_init__(self) -> None:
        if min(self.workers, self.depth, self.max_queued) < 1:
            raise ValueError(f"a link needs at least one of everything: {self}")


@dataclass(frozen=True, slots=True)
class _Step:
    """What a worker does next: one piece, or only the end of a transfer that has none left."""

    transfer: Transfer
    piece: Piece | None


class Link:
    """After each piece the most urgent transfer goes on, so an urgent one waits for one piece at most."""

    def __init__(self, name: str, config: LinkConfig, clock: Clock, observer: CacheObserver) -> None:
        self.name = name
        self._config = config
        self._clock = clock
        self._observer = observer
        self._bucket = TokenBucket(config.bandwidth, config.burst)
        self._lock = Lock()
        self._condition = Condition(self._lock)  # workers wait on it
        self._queue: list[tuple[Priority, int, int, Transfer]] = []  # priority, order of arrival, entry
        self._live: dict[Transfer, int] = {}  # those not ended, with their order of arrival
        self._telling = 0  # those that have ended, and of whose end someone is being told
        self._arrivals = 0
        self._entries = 0
        self._closed = False
        self._workers = [
            Thread(target=self._work, name=f"kvgate {name} {number}", daemon=True)
            for number in range(config.workers)
        ]
        for worker in self._workers:
            worker.start()

    def submit(self, job: Job, priority: Priority, deadline: float | None = None) -> Transfer:
        """Queue a job; it is finished exactly once, even when this raises.

        Raises:
            TransferRefusedError: the link is closed or full.
        """
        transfer = Transfer(job, priority, deadline, self._lock, self._clock)
        transfer.stop, transfer.requeue = self._stop, self._push
        displaced = None
        with self._lock:
            accepted = not self._closed
            if accepted and len(self._live) >= self._config.max_queued:
                displaced = self._displaceable(priority)
                accepted = displaced is not None
            if displaced is not None:
                displaced.stopping, displaced.settling = "refused", True
                displaced.entry = 0
            if accepted:
                self._arrivals += 1
                self._live[transfer] = self._arrivals
                self._push_new(transfer)
        if displaced is not None:
            self._settle(displaced)
        if not accepted:
            transfer.stopping = "refused"
            self._settle(transfer)
            raise TransferRefusedError(f"link {self.name} is {'closed' if self._closed else 'full'}")
        return transfer

    def queued_bytes(self, priority: Priority = Priority.WRITE_BACK) -> int:
        """Bytes still to move that are at least that urgent."""
        with self._lock:
            going = (one for one in self._live if one.stopping is None)
            return sum(one.left_bytes for one in going if one.priority <= priority)

    @property
    def idle(self) -> bool:
        """Whether every transfer has ended, and what was to be done behind it is done."""
        with self._lock:
            return not self._live and not self._telling

    def close(self, timeout: float | None = None) -> bool:
        """Cancel everything and end the threads; False: a piece was still at work after `timeout` seconds."""
        with self._condition:
            self._closed = True
            live = list(self._live)
            self._condition.notify_all()
        for transfer in live:
            self._stop(transfer, "cancelled")
        ends = None if timeout is None else monotonic() + timeout
        for worker in self._workers:
            worker.join(None if ends is None else max(ends - monotonic(), 0.0))
        return not any(worker.is_alive() for worker in self._workers) and self.idle

    # The queue, under the lock.

    def _push_new(self, transfer: Transfer) -> None:
        self._entries += 1
        transfer.entry = self._entries
        heapq.heappush(self._queue, (transfer.priority, self._live[transfer], transfer.entry, transfer))
        self._condition.notify_all()

    def _push(self, transfer: Transfer) -> None:
        """Its priority changed: if it is in the queue, its old entry is void."""
        if transfer.entry:
            self._push_new(transfer)

    def _head(self) -> Transfer | None:
        """The most urgent transfer in the queue, which stays there."""
        while self._queue:
            _, _, entry, transfer = self._queue[0]
            if transfer.entry == entry and transfer.stopping is None:
                return transfer
            heapq.heappop(self._queue)
        return None

    def _take(self, transfer: Transfer) -> None:
        heapq.heappop(self._queue)
        transfer.entry = 0

    def _displaceable(self, priority: Priority) -> Transfer | None:
        """The least urgent, youngest transfer that has not begun, if it is less urgent than `priority`."""
        waiting = [one for one in self._live if not one.issued and one.stopping is None and one.entry]
        last = max(waiting, key=lambda one: (one.priority, self._live[one]), default=None)
        return last if last is not None and last.priority > priority else None

    # The threads.

    def _work(self) -> None:
        at_work: deque[tuple[Transfer, Pending]] = deque()
        while True:
            step = self._next(wait=not at_work)
            if step is None and not at_work:
                return
            if step is not None:
                pending = self._begin(step)
                if pending is not None:
                    at_work.append((step.transfer, pending))
            if at_work and (step is None or len(at_work) >= self._config.depth):
                self._await(*at_work.popleft())

    def _next(self, wait: bool) -> _Step | None:
        """The next step; None: the link is closed, or (without `wait`) there is none right now."""
        with self._condition:
            while True:
                transfer, seconds, now = self._head(), None, self._clock.now()
                if transfer is None and self._closed:
                    return None
                if transfer is not None:
                    seconds = self._bucket.delay(now)
                    if transfer.deadline is not None:
                        if now >= transfer.deadline:
                            transfer.stopping = "expired"
                        seconds = min(seconds, transfer.deadline - now)
                    if seconds <= 0:
                        return self._issue(transfer, now)
                if not wait:
                    return None
                self._clock.wait(self._condition, seconds)

    def _issue(self, transfer: Transfer, now: float) -> _Step:
        self._take(transfer)
        if transfer.stopping is not None or not transfer.job.pieces:
            transfer.settling = transfer.idle
            return _Step(transfer, None)
        piece = transfer.job.pieces[transfer.issued]
        transfer.issued += 1
        transfer.left_bytes -= piece.nbytes
        if transfer.started is None:
            transfer.started = now
        self._bucket.spend(piece.nbytes, now)
        return _Step(transfer, piece)

    def _begin(self, step: _Step) -> Pending | None:
        """Run a piece; what comes back is still at work."""
        transfer = step.transfer
        if step.piece is None:
            if transfer.settling:
                self._settle(transfer)
            return None
        try:
            pending = step.piece.run()
        except Exception as error:  # noqa: BLE001  one bad transfer must not stop the link
            self._complete(transfer, error)
            return None
        if pending is None:
            self._complete(transfer)
            return None
        if isinstance(pending, Leavable):
            self._watch(transfer, pending)
            return None
        if self._config.workers == 1:  # with more, another one's piece might arrive first
            with self._lock:
                self._go_on(transfer)
        return pending

    def _watch(self, transfer: Transfer, piece: Leavable) -> None:
        """Wait for a piece that another thread works on, within its time; without it the link goes on."""
        until = piece.began + piece.limit
        if transfer.deadline is not None:
            until = min(until, max(transfer.deadline, piece.began + _LEAST_PATIENCE))
        if piece.wait(until):
            self._complete(transfer, piece.error)
            return
        with self._lock:
            transfer.stopping = transfer.stopping or "expired"
        try:
            transfer.job.piece_left()
        finally:
            piece.leave(lambda: self._complete(transfer, piece.error))

    def _await(self, transfer: Transfer, pending: Pending) -> None:
        try:
            pending.wait()
        except Exception as error:  # noqa: BLE001  as above
            self._complete(transfer, error)
        else:
            self._complete(transfer)

    def _complete(self, transfer: Transfer, error: Exception | None = None) -> None:
        """A piece is over."""
        nbytes, index = 0, transfer.completed  # only this thread changes it while a piece is out
        if error is None:
            try:
                transfer.job.piece_done(index)
                nbytes = transfer.job.moved(index)
            except Exception as failure:  # noqa: BLE001  as above
                error = failure
        with self._lock:
            if error is not None and transfer.error is None:
                transfer.error = error
                transfer.stopping = transfer.stopping or "failed"
            transfer.piece_over(nbytes)
            self._go_on(transfer)
            over = transfer.stopping is not None or transfer.completed == len(transfer.job.pieces)
            settle = over and transfer.idle and not transfer.settling
            transfer.settling |= settle
        if settle:
            self._settle(transfer)

    def _go_on(self, transfer: Transfer) -> None:
        """Back into the queue, if there is more to do; under the lock."""
        if transfer.stopping is None and not transfer.entry and transfer.issued < len(transfer.job.pieces):
            self._push_new(transfer)

    # Ends.

    def _stop(self, transfer: Transfer, outcome: Outcome) -> None:
        """Begin nothing more of it; it ends here if no piece is at work, else after that."""
        with self._lock:
            if transfer.stopping is not None or transfer.settling or transfer.outcome is not None:
                return
            transfer.stopping = outcome
            settle = transfer.idle
            transfer.settling = settle
            transfer.entry = 0
        if settle:
            self._settle(transfer)

    def _settle(self, transfer: Transfer) -> None:
        """Finish the job and tell everyone; once, by whoever set `settling`."""
        outcome = transfer.stopping or "done"
        try:
            transfer.job.finish(outcome == "done")
        except Exception as error:  # noqa: BLE001  one bad job must not stop the link
            _log.exception("A transfer over %s could not be finished", self.name)
            transfer.error = transfer.error or error
            outcome = "failed"
        if transfer.error is not None and outcome == "failed":
            _log.warning("A transfer over %s failed: %r", self.name, transfer.error)
        with self._lock:
            self._live.pop(transfer, None)
            self._telling += 1
        try:
            self._observer.moved(transfer.report(self.name, outcome))
        finally:
            try:
                transfer.end(outcome)
            finally:
                with self._lock:
                    self._telling -= 1
