"""Whose turn it is where an engine runs as many requests as it may: tenants share it by tokens, by their weights."""

import asyncio
import heapq
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import TypeAlias

from gateway.errors import ApiError, overloaded
from gateway.limits.queue_settings import QueueSettings
from gateway.transport.record import RequestRecord

# Minus the priority, order of arrival, tokens, the waiter's future.
_Entry: TypeAlias = tuple[int, int, float, "asyncio.Future[None]"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that wants to run."""

    tenant: str
    tokens: int  # that it may take
    weight: float = 1.0  # of its tenant
    priority: int = 0  # among those of its tenant


class FairQueue:
    """For one engine. Used from one event loop.

    Start-time fair queueing: each request has a virtual start, which is where its tenant's last one ended, or now; the
    one with the earliest start goes first; a request ends its tokens / its tenant's weight after its start. So over any
    time in which two tenants both wait, their tokens are as their weights, but for one request each.
    Source: Goyal, Vin, Cheng, "Start-time fair queueing", SIGCOMM 1996.
    """

    def __init__(self) -> None:
        self.running = 0
        self.waiting = 0
        self._bound = 0
        self._now = 0.0  # virtual
        self._ends: dict[str, float] = {}  # virtual, of each tenant's last request
        self._queues: dict[str, list[_Entry]] = {}
        self._order = count()

    def turn(self, asked: Asked, bound: int, settings: QueueSettings, record: RequestRecord) -> "Turn":
        """`async with queue.turn(...):` runs as one of `bound`; a wait is noted in `record`."""
        self._bound = bound
        return Turn(self, asked, settings, record)

    def try_enter(self, asked: Asked) -> bool:
        """Run at once, where there is room and nobody waits."""
        if self.waiting or self.running >= self._bound:
            return False
        self.running += 1
        self._charge(asked.tenant, asked.tokens / asked.weight)
        return True

    def queue(self, asked: Asked, settings: QueueSettings) -> "asyncio.Future[None]":
        """Done when it runs; raises ApiError 429 where too many wait."""
        mine = self._queues.get(asked.tenant, [])
        if len(mine) >= settings.max_waiting_per_tenant or self.waiting >= settings.max_waiting:
            whose = "of this tenant" if len(mine) >= settings.max_waiting_per_tenant else "here"
            raise overloaded(f"Too many requests {whose} wait for the engine already.", self._guess(settings))
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (-asked.priority, next(self._order), asked.tokens / asked.weight, turn)
        heapq.heappush(self._queues.setdefault(asked.tenant, mine), entry)
        self.waiting += 1
        self.go_on()  # the bound may have been raised
        return turn

    def leave(self) -> None:
        """One that ran has ended."""
        self.running -= 1
        self.go_on()

    def forget(self, tenant: str, turn: "asyncio.Future[None]") -> None:
        """One waits no more."""
        there = self._queues.get(tenant, [])
        left = [entry for entry in there if entry[3] is not turn]
        if len(left) == len(there):
            return  # it was met when others had their turn
        heapq.heapify(left)
        self._keep(tenant, left)
        self.waiting -= 1

    def go_on(self) -> None:
        """Let run whom there is room for."""
        while self.waiting and self.running < self._bound:
            tenant = min(self._queues, key=self._start)
            queue = self._queues[tenant]
            _, _, cost, turn = heapq.heappop(queue)
            self._keep(tenant, queue)
            self.waiting -= 1
            if turn.done():
                continue  # its client has left just now
            self.running += 1
            self._charge(tenant, cost)
            turn.set_result(None)

    def _start(self, tenant: str) -> tuple[float, int]:
        return max(self._now, self._ends.get(tenant, 0.0)), self._queues[tenant][0][1]

    def _charge(self, tenant: str, cost: float) -> None:
        start = max(self._now, self._ends.get(tenant, 0.0))
        self._now = start
        self._ends[tenant] = start + max(cost, 1.0)
        if len(self._ends) > 1024:
            self._ends = {name: end for name, end in self._ends.items() if end > start}

    def _keep(self, tenant: str, queue: list[_Entry]) -> None:
        if queue:
            self._queues[tenant] = queue
        else:
            del self._queues[tenant]

    @staticmethod
    def _guess(settings: QueueSettings) -> int:
        """Seconds after which the queue may have moved: nobody knows how long requests will take."""
        return max(1, min(5, int(settings.max_wait_s // 4)))


@dataclass(slots=True)
class Turn:
    """One request at an engine's queue. Raises ApiError 429 where too many wait, 503 where it took too long."""

    owner: FairQueue
    asked: Asked
    settings: QueueSettings
    record: RequestRecord

    async def __aenter__(self) -> None:
        if self.owner.try_enter(self.asked):
            return
        try:
            turn = self.owner.queue(self.asked, self.settings)
            with self.record.stages.stage("queue"):
                await self._waited(turn)
        except ApiError:
            self.record.limited = "queue"
            raise

    async def _waited(self, turn: "asyncio.Future[None]") -> None:
        try:
            async with asyncio.timeout(self.settings.max_wait_s):
                await turn
        except BaseException as error:
            # Its turn may have come in the same moment.
            if turn.done() and not turn.cancelled():
                self.owner.leave()
            else:
                self.owner.forget(self.asked.tenant, turn)
            if isinstance(error, TimeoutError):
                raise _waited_too_long(self.settings) from None
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.owner.leave()


def _waited_too_long(settings: QueueSettings) -> ApiError:
    message = f"The engine had no room for this request within {settings.max_wait_s:g} s."
    headers = {"retry-after": str(max(1, min(30, int(settings.max_wait_s))))}
    return ApiError(503, message, type_="service_unavailable", code="engine_overloaded", headers=headers)
