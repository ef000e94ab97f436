"""Counting what tenants use for all workers of a server, in the process that they share."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from itertools import count
from typing import Any

from engine_adapters.rpc.connection import Connection
from engine_adapters.rpc.errors import RpcError
from engine_adapters.rpc.link import Link
from engine_adapters.rpc.service import Call
from gateway.limits.book import share
from gateway.limits.counter import LocalCounter
from gateway.limits.tenant_limits import TenantLimits
from gateway.limits.verdict import Verdict

log = logging.getLogger("kvgate.workers")

_TIMEOUT_S = 0.5


@dataclass(slots=True)
class _Running:
    """What one worker runs. Each counts its own requests from 0 on, so that names of two are the same."""

    worker: int
    requests: dict[str, tuple[str, Verdict]] = field(default_factory=dict)  # by the worker's name of it

    def name_of(self, request: str) -> str:
        """What no other worker calls one of its requests."""
        return f"{self.worker}:{request}"


class LimitsKeeper:
    """The counts, in the process that all workers are connected to. `workers` says how many those are."""

    def __init__(self, workers: Callable[[], int]) -> None:
        self._counter = LocalCounter()
        self._workers = workers
        self._names = count()
        self._running: dict[Connection, _Running] = {}

    def calls(self) -> dict[str, Call]:
        """For a `Service`."""
        return {"limits.resume": self._resume, "limits.admit": self._admit, "limits.settle": self._settle}

    def gone(self, connection: Connection) -> None:
        """What a worker that has ended ran, runs no more; its tokens stay counted."""
        running = self._running.pop(connection, None)
        if running is not None:
            for request, (tenant, verdict) in running.requests.items():
                self._counter.settle(tenant, running.name_of(request), verdict, 0)

    def _resume(self, connection: Connection, requests: list[tuple[str, str, int]]) -> None:
        """What runs at a worker already: tenant, the worker's name of the request, tokens that it was counted with."""
        running = self._of(connection)
        for tenant, request, tokens in requests:
            verdict = self._counter.entered(tenant, running.name_of(request), tokens)
            running.requests[request] = (tenant, verdict)

    def _of(self, connection: Connection) -> _Running:
        running = self._running.get(connection)
        if running is None:
            running = self._running[connection] = _Running(next(self._names))
        return running

    def _admit(
        self, connection: Connection, tenant: str, bounds: list[int | None], request: str, tokens: int
    ) -> list[Any]:
        requests, most_tokens, concurrency = bounds
        limits = TenantLimits(requests, most_tokens, concurrency)
        running = self._of(connection)
        verdict = self._counter.judged(tenant, limits, running.name_of(request), tokens)
        if not verdict.over:
            running.requests[request] = (tenant, verdict)
        return [self._workers(), *astuple(verdict)]

    def _settle(self, connection: Connection, request: str, tokens: int) -> None:
        running = self._running.get(connection)
        found = None if running is None else running.requests.pop(request, None)
        if running is not None and found is not None:  # one that was refused was never counted
            self._counter.settle(found[0], running.name_of(request), found[1], tokens)


class WorkerCounter:
    """As `Counter` says, for one worker. While the process that counts is away, within this worker's share."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._alone = LocalCounter()
        self._mine: dict[str, tuple[str, int, Verdict]] = {}  # counted in this process: tenant, tokens
        self._there: dict[
            str, tuple[str, int]
        ] = {}  # the same, of requests that are counted in the other one
        self._away = False
        self.workers = 1  # last seen

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
        self.workers, over, *rest = answer
        if not over:
            self._there[request] = (tenant, tokens)
        return Verdict(tuple(over), *rest)

    async def resume(self, connection: Connection) -> None:
        """Tell a process that has counted nothing of this one yet what runs here, before anything else is asked."""
        for request, (tenant, tokens, verdict) in self._mine.items():
            self._alone.settle(tenant, request, verdict, 0)
            self._there[request] = (tenant, tokens)
        self._mine.clear()
        running = [(tenant, request, tokens) for request, (tenant, tokens) in self._there.items()]
        if not running:
            return
        await connection.call("limits.resume", running)
        for _, request, _ in running:
            if request not in self._there:  # it has ended meanwhile, when nobody could be told
                connection.tell("limits.settle", request, 0)

    def settle(self, tenant: str, request: str, verdict: Verdict, tokens: int) -> None:
        """A request has ended."""
        if self._mine.pop(request, None) is not None:
            self._alone.settle(tenant, request, verdict, tokens)
        else:
            self._there.pop(request, None)
            self._link.tell("limits.settle", request, tokens)

    def _judged_here(
        self, tenant: str, limits: TenantLimits, request: str, tokens: int, error: RpcError
    ) -> Verdict:
        if not self._away:
            self._away = True
            fields = {"error": str(error), "workers": self.workers}
            log.error(
                "WHAT WORKERS SHARE IS AWAY: this one keeps to its share of limits", extra={"fields": fields}
            )
        verdict = self._alone.judged(tenant, share(limits, self.workers), request, tokens)
        if not verdict.over:
            self._mine[request] = (tenant, tokens, verdict)
        return verdict

    def _back(self) -> None:
        if self._away:
            self._away = False
            log.warning("what workers share is back: limits count for all of them again")
