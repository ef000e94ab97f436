"""Counting what tenants use with the other workers of a server; alone while the process that counts is away."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from engine_adapters.rpc.connection import Connection
from engine_adapters.rpc.errors import RpcError
from engine_adapters.rpc.link import Link
from gateway.limits.counter import LocalCounter
from gateway.limits.known import NOTHING, Used, left
from gateway.limits.tenant_limits import TenantLimits
from gateway.limits.verdict import Verdict
from gateway.limits.window import LASTS
from gateway.workers.limits_keeper import Passed, Runs, Total

log = logging.getLogger("kvgate.workers")

_TIMEOUT_S = 0.5


class WorkerCounter:
    """As `Counter` says, for one worker.

    What this worker let pass, and what it was told of the others, is kept here as well. While the process that counts
    is away, each worker lets its part of what was left pass; and the next process is told what was used before it.
    """

    def __init__(self, link: Link, workers: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`workers`: how many count together, this one among them."""
        self._link = link
        self._workers = workers
        self._clock = clock
        self._keeper = ""  # the process that has counted what is in `_passed`
        self._passed = LocalCounter(clock)  # through this worker, counted by that process
        self._alone = LocalCounter(clock)  # through this worker, and no other process knows it
        self._there: dict[str, tuple[str, Verdict]] = {}  # what runs, in `_passed`
        self._mine: dict[str, tuple[str, Verdict]] = {}  # what runs, in `_alone`
        self._others: dict[
            str, tuple[float, Used]
        ] = {}  # by tenant, what passed through others, and as of when
        self._away = False

    async def admit(self, tenant: str, limits: TenantLimits, request: str, tokens: int) -> Verdict:
        """Count a request, where it may go on."""
        bounds = [limits.requests_per_minute, limits.tokens_per_minute, limits.concurrency]
        try:
            answer = await self._link.call(
                "limits.admit", tenant, bounds, request, tokens, timeout_s=_TIMEOUT_S
            )
        except RpcError as error:
            self._link.tell("limits.settle", request, -tokens)  # it may have been counted there all the same
            return self._judged_here(tenant, limits, request, tokens, error)
        except asyncio.CancelledError:
            self._link.tell("limits.settle", request, -tokens)
            raise
        self._back()
        over, *rest = answer
        verdict = Verdict(tuple(over), *rest)
        if not over:
            self._there[request] = (tenant, self._passed.entered(tenant, request, tokens))
        running = self._others.get(tenant, (0.0, NOTHING))[1].running
        mine = self._through_here(tenant)
        self._learn(tenant, Used(verdict.requests, verdict.tokens, mine.running + running))
        return verdict

    def settle(self, tenant: str, request: str, verdict: Verdict, tokens: int) -> None:
        """A request has ended."""
        if (found := self._mine.pop(request, None)) is not None:
            self._alone.settle(tenant, request, found[1], tokens)
            return
        if (found := self._there.pop(request, None)) is not None:
            self._passed.settle(tenant, request, found[1], tokens)
        self._link.tell("limits.settle", request, tokens)

    def used(self, totals: Sequence[Total]) -> None:
        """What all workers use, as the process that counts says now and then."""
        now = self._clock()
        for tenant, *used in totals:
            self._learn(tenant, Used(*used))
        self._others = {name: known for name, known in self._others.items() if now < known[0] + LASTS}

    async def resume(self, connection: Connection) -> None:
        """Tell a process that may have counted nothing yet what was used, before anything else is asked."""
        name = await connection.call("limits.name")
        anew, self._keeper = name != self._keeper, ""
        alone, _ = self._take_alone()
        runs = self._told(self._there)  # whatever it knew of those ended with the connection before
        passed = self._parts(self._passed if anew else alone)
        totals: list[Total] = []
        for tenant in {*self._passed.books, *self._others} if anew else ():
            known = self._known(tenant)
            if known != NOTHING:
                totals.append((tenant, known.requests, known.tokens, known.running))
        await connection.call("limits.resume", runs, passed, totals)
        self._keeper = name
        for _, request, _ in runs:
            if request not in self._there:  # it has ended meanwhile, when nobody could be told
                connection.tell("limits.settle", request, 0)

    def _take_alone(self) -> tuple[LocalCounter, dict[str, tuple[str, Verdict]]]:
        """What the process that counts is told of now, so that it is kept as counted there; and what runs of it."""
        now, alone, runs = self._clock(), self._alone, self._mine
        for tenant, book in alone.books.items():
            mine = self._passed.book(tenant)
            mine.requests.merge(now, book.requests.parts(now))
            mine.tokens.merge(now, book.tokens.parts(now))
            mine.running |= book.running
        self._there |= runs
        self._alone, self._mine = LocalCounter(self._clock), {}
        return alone, runs

    def _told(self, runs: Mapping[str, tuple[str, Verdict]]) -> list[Runs]:
        now = int(self._clock())
        return [(tenant, request, now - verdict.second) for request, (tenant, verdict) in runs.items()]

    def _parts(self, counter: LocalCounter) -> list[Passed]:
        now = self._clock()
        found = (
            (name, book.requests.parts(now), book.tokens.parts(now)) for name, book in counter.books.items()
        )
        return [each for each in found if each[1] or each[2]]

    def _judged_here(
        self, tenant: str, limits: TenantLimits, request: str, tokens: int, error: RpcError
    ) -> Verdict:
        if not self._away:
            self._away = True
            fields = {"error": str(error), "workers": self._workers}
            log.error(
                "WHAT WORKERS SHARE IS AWAY: this one keeps to its share of limits", extra={"fields": fields}
            )
        known = self._known(tenant)
        part = left(limits, known, self._workers)
        verdict = self._alone.judged(tenant, part, request, tokens)
        if not verdict.over:
            self._mine[request] = (tenant, verdict)
        return _of_all(verdict, limits, part)

    def _known(self, tenant: str) -> Used:
        """What all workers used, as far as that is known here, but for what passed here since nobody counts."""
        at, others = self._others.get(tenant, (0.0, NOTHING))
        return self._through_here(tenant) + (others if self._clock() < at + LASTS else NOTHING)

    def _through_here(self, tenant: str) -> Used:
        now, book = self._clock(), self._passed.book(tenant)
        return Used(book.requests.used(now), book.tokens.used(now), len(book.running))

    def _learn(self, tenant: str, used: Used) -> None:
        self._others[tenant] = (self._clock(), used - self._through_here(tenant))

    def _back(self) -> None:
        if self._away:
            self._away = False
            log.warning("what workers share is back: limits count for all of them again")
            alone, runs = self._take_alone()  # that came while it did not answer
            self._link.tell("limits.resume", self._told(runs), self._parts(alone), [])


def _of_all(verdict: Verdict, limits: TenantLimits, part: TenantLimits) -> Verdict:
    """As if counted of the whole limit: what is left of it is what is left of the part."""

    def used(limit: int | None, of: int | None, number: int) -> int:
        return number if limit is None or of is None else max(0, limit - of + number)

    return replace(
        verdict,
        requests=used(limits.requests_per_minute, part.requests_per_minute, verdict.requests),
        tokens=used(limits.tokens_per_minute, part.tokens_per_minute, verdict.tokens),
    )
