"""From a prepared request to the replica that answers it: tries, and others where the first ones cannot.

All of it happens before the client has got a byte of an answer; what happens after that is its replica's.
"""

import asyncio
import time
from collections.abc import Mapping
from functools import partial

import msgspec

from engine_adapters.errors import (
    EngineError,
    EngineFailureError,
    EngineNotReadyError,
    EngineOverloadedError,
    EngineTimeoutError,
)
from gateway.jobs import JobContext
from gateway.relay.begun import Begun, Held
from gateway.relay.request import Outgoing, Prepared, outgoing
from gateway.replicas.pool import EnginePool
from gateway.replicas.visit import Ending, Visit
from gateway.transport.record import RequestRecord

_ELSEWHERE = (429, 502, 503)  # statuses of who does not take a request that another replica may take
_ENDINGS: Mapping[int, Ending] = {429: "unknown", 500: "doubtful", 502: "bad", 503: "bad", 504: "bad"}
_KILLED = 2  # replicas that one request may take down: it may be the request


class Opened(msgspec.Struct):
    """An answer that has begun, at a replica. Whoever gets it closes it, which ends the visit."""

    visit: Visit
    sent: Outgoing
    begun: Begun
    _held: Held
    outcome: Ending = "good"

    @property
    def status(self) -> int:
        """HTTP."""
        return self.begun.answer.status

    async def aclose(self) -> None:
        """Close the connection, which cancels what the engine has not done yet; again is of no effect."""
        try:
            await self._held.aclose()
        finally:
            account = self.begun.answer.account
            # A refusal says nothing of the prompt: it was not computed.
            reuse = None if self.status >= 400 else account.reuse
            self.visit.ended(self.outcome, reuse, whole=account.ended and self.sent.prompt)


class Attempts:
    """One request's. `open` is called once. `only`: the one replica that can answer it; None: any can."""

    def __init__(
        self,
        given: Prepared,
        pool: EnginePool,
        context: JobContext,
        record: RequestRecord,
        only: str | None = None,
    ) -> None:
        self._given = given
        self._pool = pool
        self._context = context
        self._record = record
        self._only = only
        self._room = context.room(pool.name)
        self._tried: frozenset[str] = frozenset()
        self._killed = 0

    async def open(self) -> Opened:
        """The answer that goes to the client, an error of an engine among them.

        Raises ApiError for what is wrong with the request, and EngineError where no replica answers.
        """
        self._pool.budget.request()
        visit = await self._choose()
        hedge_s = self._pool.policy.hedge_after_s
        opened = await (self._tried_at(visit) if hedge_s is None else self._hedged(visit, hedge_s))
        while (why := self._why_elsewhere(opened)) is not None:
            another = await self._another()
            if another is None:
                break
            self._pool.retries[why] += 1
            opened = await self._tried_at(another)
        if isinstance(opened, EngineError):
            raise opened
        self._noted(opened)
        return opened

    async def _choose(self) -> Visit:
        began = time.perf_counter()
        try:
            visit = await self._pool.choose(self._given.ask, self._tried, self._only, self._room)
        finally:
            self._record.stages.took("route", began)
        visit.raw = self._given.raw
        self._tried |= {visit.remote.replica}
        self._record.routed = visit.decision
        return visit

    async def _another(self) -> Visit | None:
        """Where it goes next; None: nowhere."""
        if self._only is not None or len(self._tried) >= self._pool.policy.retries.tries:
            return None
        if not self._pool.budget.take():
            return None
        try:
            return await self._choose()
        except EngineNotReadyError:
            self._pool.budget.give_back()
            return None

    async def _tried_at(self, visit: Visit) -> Opened | EngineError:
        """An answer or an error that speaks of the replica; raises ApiError for what speaks of the request."""
        held = Held()
        began = time.monotonic()
        try:
            remote, record = visit.remote, self._record
            sent = await outgoing(self._given, remote, visit.decision, self._context, record)
            record.stages.sending()
            record.attempts += 1
            sent_at = time.monotonic()
            relay = remote.engine.relay(sent.request, sent.rewrites)
            answer = await relay.__aenter__()
            held.entered(relay)
            begun = await held.begin(answer, remote.name, stream=sent.request.stream)
        except EngineError as error:
            await held.aclose()
            visit.ended(self._failed(visit, error, time.monotonic() - began))
            visit.remote.nudge()
            return error
        except BaseException as error:
            await held.aclose()
            visit.ended(self._given_up(visit, error, time.monotonic() - began))
            raise
        begun.stall_s = self._pool.policy.stall_s
        begun.first_token = partial(self._began_to_answer, visit, sent_at)
        opened = Opened(visit, sent, begun, held, _ENDINGS.get(answer.status, "good"))
        if answer.status in _ELSEWHERE:
            await opened.aclose()  # it is all there; a busy replica need not keep a connection for it
        return opened

    def _began_to_answer(self, visit: Visit, sent_at: float) -> None:
        visit.first_token()
        self._pool.took(visit, time.monotonic() - sent_at)

    def _failed(self, visit: Visit, error: EngineError, waited_s: float) -> Ending:
        """What the error says of the replica."""
        if isinstance(error, EngineTimeoutError):
            return "bad" if _silent(visit, waited_s) else "doubtful"
        if isinstance(error, EngineFailureError):
            return "doubtful"
        return "bad" if isinstance(error, EngineNotReadyError) else "unknown"

    def _given_up(self, visit: Visit, error: BaseException, waited_s: float) -> Ending:
        """Nobody waited for the replica any longer: after how long says something of it."""
        if not isinstance(error, asyncio.CancelledError):
            return "unknown"
        if self._given.wanted.stream:
            self._pool.waited(visit, waited_s)
        # A whole answer may take long; a replica that gives nobody anything meanwhile hangs.
        return "bad" if _silent(visit, waited_s) and waited_s >= self._pool.policy.hung_s else "unknown"

    def _why_elsewhere(self, opened: Opened | EngineError) -> str | None:
        """In a word, why another replica may be asked; None: none may."""
        if isinstance(opened, Opened):
            return str(opened.status) if opened.status in _ELSEWHERE else None
        if isinstance(opened, EngineNotReadyError):
            return "not_ready"
        if isinstance(opened, EngineOverloadedError):
            return "overloaded"
        if not isinstance(opened, EngineFailureError) or isinstance(opened, EngineTimeoutError):
            return None  # it may work on it still
        self._killed += 1
        return "broken" if self._killed < _KILLED else None

    async def _hedged(self, visit: Visit, after_s: float) -> Opened | EngineError:
        """The first good answer of one replica, or of a second one that is asked where the first takes long."""
        tasks = [asyncio.create_task(self._tried_at(visit))]
        found: Opened | EngineError | None = None
        try:
            await asyncio.wait(tasks, timeout=after_s)
            if not tasks[0].done() and (second := await self._another()) is not None:
                tasks.append(asyncio.create_task(self._tried_at(second)))
            found = await self._best(tasks)
        finally:
            await _drop([task for task in tasks if not task.done() or _result(task) is not found])
        if len(tasks) == 2:
            self._pool.hedges["won" if _result(tasks[1]) is found else "lost"] += 1
        return found

    async def _best(self, tasks: list["asyncio.Task[Opened | EngineError]"]) -> Opened | EngineError:
        """Good before bad, and the earlier one of equals."""
        waiting = set(tasks)
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                found = task.result()
                if isinstance(found, Opened) and found.outcome == "good":
                    return found
        return tasks[-1].result()

    def _noted(self, opened: Opened) -> None:
        """Which of several tries the record speaks of."""
        self._record.replica, self._record.block_size = opened.sent.replica, opened.visit.remote.block_size
        self._record.expected, self._record.routed = opened.sent.expected, opened.visit.decision


async def _drop(tasks: list["asyncio.Task[Opened | EngineError]"]) -> None:
    """Cancel what runs, close what was opened."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        found = _result(task)
        if isinstance(found, Opened):
            found.outcome = "unknown"
            await found.aclose()


def _result(task: "asyncio.Task[Opened | EngineError]") -> Opened | EngineError | None:
    """None: it was cancelled, or failed."""
    return None if not task.done() or task.cancelled() or task.exception() is not None else task.result()


def _silent(visit: Visit, waited_s: float) -> bool:
    """Whether its replica has given nobody anything for so long."""
    answered_at = visit.member.answered_at
    return answered_at is None or time.monotonic() - answered_at > waited_s
