"""The threads that call one tier, and what is known of those that do not come back."""

import logging
from collections import deque
from collections.abc import Callable
from threading import Condition, Lock, Thread
from typing import Any, TypeVar

from cache_core.drop_reason import DropReason
from cache_core.metrics import CacheObserver, TierName
from cache_core.tiered.watch.call import Call
from cache_core.tiered.watch.limits import CallLimits
from cache_core.tiers.base import CallKind
from cache_core.transfer.clock import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")

_KEPT = 4  # threads that wait for the next call; others are started when they are needed
_MOST_LOST = 16  # calls that still have not returned after the tier has: with more, only a return counts
_TELL_EVERY = 60.0  # seconds between two lines about the same

_KINDS: tuple[CallKind, ...] = ("read", "write")
_AWAY: dict[CallKind, str] = {
    "read": "does not answer: %d calls have not returned in time. Nothing is read from it or written to it until one "
    "of them returns or a look at it succeeds; what it has is computed again",
    "write": "takes nothing: %d writes have not returned in time. Nothing is written to it until one of them returns "
    "or a look at it succeeds",
}


class Calls:
    """Every call has a thread for itself while it lasts. One that is left alone keeps it, and others get others.

    With `most_stuck` calls of a kind left alone the tier is away for that kind: no more are begun. It is back when so
    many have returned that there are fewer, or when `probe` returns, which is tried on one more thread again and again.
    A tier from which nothing can be read gets nothing written either.

    Args:
        probe: touches what the tier lies on, and raises where that fails.
        hangs: called when a call is left alone, so that the tier can put threads of its own that hang with it aside.
    """

    def __init__(
        self,
        tier: TierName,
        limits: CallLimits,
        clock: Clock,
        observer: CacheObserver,
        probe: Callable[[], object],
        hangs: Callable[[], object],
    ) -> None:
        self._tier: TierName = tier
        self._limits = limits
        self._clock = clock
        self._observer = observer
        self._probe = probe
        self._hangs = hangs
        lock = Lock()
        self._changed = Condition(lock)  # guards what follows; who looks at a tier that is away waits on it
        self._called = Condition(lock)  # idle threads wait on it
        self._queue: deque[Call[Any]] = deque()  # each has a thread that is about to take it
        self._idle = 0
        self._stuck: dict[CallKind, set[Call[Any]]] = {kind: set() for kind in _KINDS}
        self._lost: set[Call[Any]] = set()  # those left alone before the tier came back
        self._told: dict[CallKind, bool] = dict.fromkeys(_KINDS, False)  # what observers know: it is away
        self._told_at: dict[str, float] = {}
        self._probing = False
        self._closed = False

    def away(self, kind: CallKind) -> bool:
        """Whether no such call is begun now. Takes no lock."""
        return any(
            len(self._stuck[one]) >= self._limits.most_stuck for one in _KINDS[: _KINDS.index(kind) + 1]
        )

    def begin(self, kind: CallKind, work: Callable[[], T], limit: float, blocks: int = 0) -> Call[T] | None:
        """Make a call on a thread of its own; None: the tier is away, or this is closed.

        Args:
            limit: seconds that whoever waits should wait at most.
            blocks: that it moves.
        """
        call = Call(kind, work, limit, blocks, self._clock, self._late)
        with self._changed:
            if self._closed or self.away(kind):
                return None
            self._queue.append(call)
            if self._idle:
                self._idle -= 1
                self._called.notify()
                return call
        Thread(target=self._work, name=f"kvgate {self._tier} call", daemon=True).start()
        return call

    def close(self) -> None:
        """Begin no more calls, and end the threads that have none."""
        with self._changed:
            self._closed = True
            self._called.notify_all()
            self._changed.notify_all()

    # The threads.

    def _work(self) -> None:
        while self._do_next():
            pass

    def _do_next(self) -> bool:
        """Holds nothing of a call while it waits for the next one. False: there is none."""
        call = self._next()
        if call is None:
            return False
        call.run()
        with self._changed:
            call.returned = True
            self._stuck[call.kind].discard(call)
            self._lost.discard(call)
        call.end()
        self._tell()
        with self._changed:
            if self._idle >= _KEPT:
                return False
            self._idle += 1
        return True

    def _next(self) -> Call[Any] | None:
        with self._changed:
            while not self._queue:
                if self._closed:
                    return None
                self._called.wait()
            return self._queue.popleft()

    # What hangs.

    def _late(self, call: Call[Any]) -> None:
        """It is left alone."""
        with self._changed:
            if call.returned:
                return
            self._stuck[call.kind].add(call)
        self._observer.late(self._tier, call.kind)
        if call.blocks:
            self._observer.dropped(self._tier, DropReason.SLOW, call.blocks)
        self._say(
            logging.WARNING,
            f"{call.kind} late",
            "a %s of the %s tier has not returned in %.1f s; what else there is goes on without it",
            call.kind,
            self._tier,
            call.limit,
        )
        self._hangs()
        self._tell()

    def _tell(self) -> None:
        """Observers and the log hear what has changed, and a tier that is away is looked at."""
        with self._changed:
            now = {kind: self.away(kind) for kind in _KINDS}
            changed = [kind for kind in _KINDS if now[kind] != self._told[kind]]
            self._told.update(now)
            stuck = {kind: len(self._stuck[kind]) for kind in _KINDS}
            look = any(now.values()) and not self._probing and not self._closed
            self._probing |= look
        for kind in changed:
            self._observer.away(self._tier, kind, now[kind])
        if look:
            Thread(target=self._look, name=f"kvgate {self._tier} probe", daemon=True).start()
        for kind in changed:
            if now["read"] and kind == "write":
                continue  # it goes with the other
            if now[kind]:
                self._say(logging.WARNING, kind, f"the %s tier {_AWAY[kind]}", self._tier, stuck[kind])
            else:
                self._say(logging.WARNING, f"{kind} back", "the %s tier answers again (%s)", self._tier, kind)

    def _say(self, level: int, what: str, line: str, *values: object) -> None:
        """A tier that is just too slow goes away and comes back all the time."""
        with self._changed:
            now = self._clock.now()
            told = self._told_at.get(what)
            if told is not None and now - told < _TELL_EVERY:
                return
            self._told_at[what] = now
        log.log(level, line, *values)

    # Whether it is back.

    def _look(self) -> None:
        while self._wait_for_look():
            try:
                self._probe()
            except Exception as error:  # noqa: BLE001  whatever it is, the tier is not back
                log.debug("the %s tier is still away: %r", self._tier, error)
                continue
            with self._changed:
                for calls in self._stuck.values():
                    room = _MOST_LOST - len(self._lost)
                    forgiven = list(calls)[: max(room, 0)]
                    self._lost.update(forgiven)
                    calls.difference_update(forgiven)
            self._tell()

    def _wait_for_look(self) -> bool:
        """Wait for the moment of the next look; False: there is nothing to look for any more."""
        with self._changed:
            ends = self._clock.now() + self._limits.probe_every
            while not self._closed and self.away("write") and (left := ends - self._clock.now()) > 0:
                self._clock.wait(self._changed, left)
            self._probing = not self._closed and self.away("write")
            return self._probing
