"""Prompts that tiers below the device are asked for, on a thread that nobody else's work waits for."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import Full, Queue
from threading import Lock, Thread

from cache_core.tiered.fetch import Fetch
from cache_core.tiered.lookup import Inquiry
from cache_core.tiered.own_load import OwnLoad
from cache_core.tiered.state_fetch import StateFetch
from cache_core.tokens import Tokens

log = logging.getLogger(__name__)

_MAX_WAITING = 512  # asks; of more, requests are recomputed
_PATIENCE = (
    0.5  # of the time that is left: what one tier may take, so that a silent one leaves some for the others
)
_BREATH = 1e-4  # seconds for which other threads are let in between pieces of the work


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of a prompt."""

    expected: int  # leading tokens that will be ready when what is on its way has come
    fetch: Fetch | None = None  # what brings them; another request's, where that brings as much
    shared: int = 0  # leading tokens for which that fetch counts
    own: bool = True  # whether the fetch was begun for this prompt
    state: StateFetch | None = None  # hybrid models: what brings the state to go with it
    covered: int = 0  # and as far as KV is there, whatever it is good for without a state

    load: OwnLoad | None = None  # what comes up behind that when the request has its lease

    @property
    def awaited(self) -> bool:
        """Whether something comes that is worth waiting for."""
        blocks, state = self.fetch, self.state
        return (blocks is not None and blocks.awaited) or (state is not None and not state.done)

    def leave(self) -> None:
        """Who asked does not want it any more."""
        if self.fetch is not None:
            self.fetch.leave()
        if self.load is not None:
            self.load.drop()
        if self.state is not None:
            self.state.leave()


class Ask(Inquiry):
    """One prompt. Whoever asks waits while `waits`, and says by `cancel` that it does not any more.

    Args:
        deadline: on the clock, in seconds; after it nobody waits for an answer any more.
    """

    def __init__(
        self, tokens: Tokens, scope: str, deadline: float, clock: Callable[[], float], alone: bool = False
    ) -> None:
        self.tokens = tokens
        self.scope = scope
        self.alone = alone
        self.deadline = deadline
        self._clock = clock
        self._lock = Lock()  # guards the two below
        self._answer: Answer | None = None
        self._cancelled = False

    @property
    def answer(self) -> Answer | None:
        """None: there is none yet, or it came too late."""
        return self._answer

    @property
    def waits(self) -> bool:
        """Whether something may still come that is worth waiting for."""
        answer = self._answer
        if answer is None:
            return not self._cancelled and self._clock() < self.deadline
        return answer.awaited

    @property
    def late(self) -> bool:
        """Whether its time is over without an answer."""
        return self._answer is None and self._clock() >= self.deadline

    @property
    def patience(self) -> float:
        return max(self.deadline - self._clock(), 0.0) * _PATIENCE

    def goes_on(self) -> bool:
        time.sleep(_BREATH)
        return not self._cancelled and self._clock() < self.deadline

    def answered(self, answer: Answer) -> None:
        """For the thread that answers: it counts as one more user of `answer.fetch`, already."""
        with self._lock:
            unwanted = self._cancelled
            self._answer = None if unwanted else answer
        if unwanted:
            answer.leave()

    def take_load(self) -> OwnLoad | None:
        """What comes up into the request's own blocks; from here on it is the request's to end."""
        with self._lock:
            if self._answer is None or self._answer.load is None:
                return None
            load = self._answer.load
            self._answer = replace(self._answer, load=None)
            return load

    def cancel(self) -> None:
        """It is not wanted any more, and neither is what it brings, but for others that share it."""
        with self._lock:
            if self._cancelled:
                return
            self._cancelled = True
            answer = self._answer
        if answer is not None:
            answer.leave()


class Asker:
    """Answers one prompt after the other.

    Args:
        respond: finds what there is; on the thread.
        ended: called after each one, whatever came of it.
    """

    def __init__(self, respond: Callable[[Ask], Answer], ended: Callable[[], None]) -> None:
        self._respond = respond
        self._ended = ended
        self._asks: Queue[Ask | None] = Queue(_MAX_WAITING)
        self._thread = Thread(target=self._run, name="kvgate tier lookup", daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Whether every prompt has its answer."""
        return not self._asks.unfinished_tasks

    def put(self, ask: Ask) -> bool:
        """Look for it; False: there are too many."""
        try:
            self._asks.put_nowait(ask)
        except Full:
            return False
        return True

    def close(self, timeout: float) -> None:
        """End the thread, if it does within that many seconds."""
        try:
            self._asks.put(None, timeout=timeout)
        except Full:
            return
        self._thread.join(timeout)

    def _run(self) -> None:
        while (ask := self._asks.get()) is not None:
            try:
                ask.answered(self._respond(ask) if ask.waits else Answer(0))
            except Exception:
                log.exception("the tiers below the device could not be asked")
                ask.answered(Answer(0))
            finally:
                self._asks.task_done()
                self._ended()
        self._asks.task_done()
