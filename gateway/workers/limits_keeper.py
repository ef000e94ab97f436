"""Counting what tenants use for all workers of a server, in the process that they share."""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import count
from typing import Any, TypeAlias

from engine_adapters.rpc.connection import Connection
from engine_adapters.rpc.service import Call
from gateway.limits.counter import LocalCounter
from gateway.limits.known import NOTHING, Used, left
from gateway.limits.tenant_limits import TenantLimits
from gateway.limits.verdict import Verdict
from gateway.limits.window import LASTS

TELL_S = 0.25  # between two times that workers are told what all of them use
_RESUME_S = 2.0  # within which all workers find a process that is new
_RUNS = Verdict((), 0, 0, 0.0, 0.0, 0.0)

Parts: TypeAlias = list[tuple[int, int]]  # seconds ago, how many
Passed: TypeAlias = tuple[str, Parts, Parts]  # tenant, its requests, its tokens
Runs: TypeAlias = tuple[str, str, int]  # tenant, the worker's name of the request, seconds ago
Total: TypeAlias = tuple[str, int, int, int]  # tenant, and as `Used`


@dataclass(slots=True)
class _Worker:
    """What one worker runs. Each counts its own requests from 0 on, so that names of two are the same."""

    number: int
    requests: dict[str, tuple[str, Verdict]] = field(default_factory=dict)  # by the worker's name of it

    def name_of(self, request: str) -> str:
        """What no other worker calls one of its requests."""
        return f"{self.number}:{request}"


@dataclass(slots=True)
class _Resumed:
    """Of one tenant, what workers have said since this process is there."""

    known: Used = NOTHING  # what was used by all, the most that any of them knew
    told: Used = NOTHING  # by those that have come
    at: float = 0.0  # when the last one of them came

    def missing(self, now: float) -> Used:
        """What was used by workers that have not come yet, or never will."""
        if now >= self.at + LASTS:
            return NOTHING
        missing = self.known - self.told
        return missing if now < self.at + _RESUME_S else replace(missing, running=0)


class LimitsKeeper:
    """The counts, in the process that all workers are connected to.

    Workers are told what all use each `TELL_S`, and tell it to a process that has taken the place of this one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._counter = LocalCounter(clock)
        self._clock = clock
        self._name = secrets.token_hex(8)
        self._numbers = count()
        self._there: dict[Connection, _Worker] = {}
        self._resumed: dict[str, _Resumed] = {}
        self._changed: set[str] = set()
        self._telling: asyncio.TimerHandle | None = None

    def calls(self) -> dict[str, Call]:
        """For a `Service`."""
        return {
            "limits.name": self._name_to,
            "limits.resume": self._resume,
            "limits.admit": self._admit,
            "limits.settle": self._settle,
        }

    def gone(self, connection: Connection) -> None:
        """What a worker that has ended ran, runs no more; its tokens stay counted."""
        worker = self._there.pop(connection, None)
        if worker is not None:
            for request, (tenant, verdict) in worker.requests.items():
                self._counter.settle(tenant, worker.name_of(request), verdict, 0)
                self._change(tenant)

    def _name_to(self, connection: Connection) -> str:
        """That no other process has: a worker that knows it has told its counts already."""
        self._of(connection)
        return self._name

    def _resume(
        self,
        connection: Connection,
        runs: Sequence[Runs],
        passed: Sequence[Passed],
        totals: Sequence[Total],
    ) -> None:
        """What a worker let pass that was not counted here, what runs there, and what it knows of all workers."""
        worker, now = self._of(connection), self._clock()
        told: dict[str, Used] = {}
        for tenant, request, age in runs:
            self._counter.book(tenant).running.add(worker.name_of(request))
            worker.requests[request] = (tenant, replace(_RUNS, second=int(now) - age))
            told[tenant] = told.get(tenant, NOTHING) + Used(running=1)
        for tenant, requests, tokens in passed:
            book = self._counter.book(tenant)
            book.requests.merge(now, requests)
            book.tokens.merge(now, tokens)
            told[tenant] = told.get(tenant, NOTHING) + Used(
                sum(number for _, number in requests), sum(number for _, number in tokens)
            )
            self._change(tenant)
        for tenant, *known in totals:
            resumed = self._resumed.setdefault(tenant, _Resumed())
            resumed.known |= Used(*known)
            resumed.told += told.get(tenant, NOTHING)
            resumed.at = now

    def _admit(
        self, connection: Connection, tenant: str, bounds: list[int | None], request: str, tokens: int
    ) -> list[Any]:
        requests, most_tokens, concurrency = bounds
        limits = TenantLimits(requests, most_tokens, concurrency)
        missing = self._missing(tenant)
        if missing != NOTHING:
            limits = left(limits, missing)
        worker = self._of(connection)
        verdict = self._counter.judged(tenant, limits, worker.name_of(request), tokens)
        if not verdict.over:
            worker.requests[request] = (tenant, verdict)
            self._change(tenant)
        told = replace(
            verdict, requests=verdict.requests + missing.requests, tokens=verdict.tokens + missing.tokens
        )
        return list(astuple(told))

    def _settle(self, connection: Connection, request: str, tokens: int) -> None:
        worker = self._there.get(connection)
        found = None if worker is None else worker.requests.pop(request, None)
        if worker is not None and found is not None:  # one that was refused was never counted
            self._counter.settle(found[0], worker.name_of(request), found[1], tokens)
            self._change(found[0])

    def _of(self, connection: Connection) -> _Worker:
        worker = self._there.get(connection)
        if worker is None:
            worker = self._there[connection] = _Worker(next(self._numbers))
        return worker

    def _missing(self, tenant: str) -> Used:
        resumed = self._resumed.get(tenant)
        if resumed is None:
            return NOTHING
        now = self._clock()
        if now >= resumed.at + LASTS:
            del self._resumed[tenant]
        return resumed.missing(now)

    def _change(self, tenant: str) -> None:
        self._changed.add(tenant)
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(TELL_S, self._tell)

    def _tell(self) -> None:
        self._telling = None
        totals = [(tenant, *astuple(self._used(tenant))) for tenant in self._changed]
        self._changed.clear()
        for connection in list(self._there):
            connection.tell("limits.used", totals)

    def _used(self, tenant: str) -> Used:
        now, book = self._clock(), self._counter.book(tenant)
        counted = Used(book.requests.used(now), book.tokens.used(now), len(book.running))
        return counted + self._missing(tenant)
