"""What tenants may use, as a request sees it: let on or refused, and settled when it is known what it took."""

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from engine_adapters.errors import EngineError
from gateway.errors import ApiError
from gateway.limits.counter import Counter, LocalCounter
from gateway.limits.estimate import LIGHT, MOST, Estimate, estimate
from gateway.limits.fair_queue import Asked, FairQueue
from gateway.limits.hints import Pins
from gateway.limits.queue_settings import QueueSettings
from gateway.limits.shared_counter import SharedCounter
from gateway.limits.tenant_limits import TenantLimits
from gateway.limits.verdict import Verdict
from gateway.transport.incoming import Incoming
from gateway.transport.record import RequestRecord

if TYPE_CHECKING:  # it brings the redis package with it
    from gateway.shared_state.shared_state import SharedState

_NO_QUEUE = nullcontext()
_numbers = count()


class Limits:
    """One process's. `state`: where all gateways count together; `workers`: where those of one server do.

    Attributes:
        processes: of this server that serve side by side, each with a part of what engines run.
    """

    def __init__(self, state: "SharedState | None" = None, workers: Counter | None = None) -> None:
        self.state = state
        self.queues: dict[str, FairQueue] = {}  # by engine, of those that have a bound
        self.pins = Pins()
        self._shared = None if state is None else SharedCounter(state)
        self.processes = 1
        self._counter: Counter = self._shared or workers or LocalCounter()

    def start(self) -> None:
        """Called on the event loop that requests run on."""
        if self._shared is not None:
            self._shared.start()

    async def aclose(self) -> None:
        """Say nothing to others any more; the last that uses the shared state lets go of it."""
        if self._shared is not None:
            await self._shared.aclose()
        if self.state is not None:
            await self.state.aclose()

    @property
    def gateways(self) -> int:
        """That count together, as last seen."""
        return 1 if self._shared is None else self._shared.gateways

    def turn(
        self,
        engine: str,
        bound: int | None,
        incoming: Incoming,
        limits: TenantLimits,
        settings: QueueSettings,
        record: RequestRecord,
    ) -> AbstractAsyncContextManager[None]:
        """Runs its block as one of `bound` at the engine, and as `Turn` raises; None: there is no bound.

        Workers of one server have an even part of it each, and at least 1.
        """
        if bound is None or record.route in LIGHT:
            return _NO_QUEUE
        bound = self.part(bound)
        queue = self.queues.get(engine)
        if queue is None:
            queue = self.queues[engine] = FairQueue()
        tokens = estimate(record.route, incoming.raw, incoming.body).total
        priority = min(_priority(incoming.body.get("kvgate")), limits.highest_priority)
        return queue.turn(
            Asked(incoming.tenant.name, tokens, limits.weight, priority), bound, settings, record
        )

    def part(self, bound: int) -> int:
        """Of `bound` requests that may run, those of this process."""
        return max(1, bound // self.processes)

    def of(
        self, incoming: Incoming, limits: TenantLimits, record: RequestRecord
    ) -> "AbstractAsyncContextManager[object]":
        """`async with limits.of(...):` a request that counts while its block runs; raises ApiError 429."""
        if not limits.counted:
            return Uncounted(self.pins, incoming.tenant.name, record.id)
        return Usage(self._counter, self.pins, incoming, limits, record)


class Uncounted:
    """One request of a tenant without limits: only its pins end with it."""

    __slots__ = ("_pins", "_request", "_tenant")

    def __init__(self, pins: Pins, tenant: str, request: str) -> None:
        self._pins = pins
        self._tenant = tenant
        self._request = request

    async def __aenter__(self) -> None:
        """There is nothing to wait for."""

    async def __aexit__(self, *_: object) -> None:
        self._pins.ended(self._tenant, self._request)


@dataclass(slots=True)
class Usage:
    """One request at its tenant's limits."""

    counter: Counter
    pins: Pins
    incoming: Incoming
    limits: TenantLimits
    record: RequestRecord
    _id: str = field(
        init=False, default_factory=lambda: str(next(_numbers))
    )  # a client may send its own id twice
    _estimate: Estimate = field(init=False)
    _verdict: Verdict | None = field(init=False, default=None)  # None: it was refused

    async def __aenter__(self) -> Self:
        tenant, record = self.incoming.tenant.name, self.record
        self._estimate = estimate(record.route, self.incoming.raw, self.incoming.body)
        asked = self._estimate.total
        verdict = await self.counter.admit(tenant, self.limits, self._id, asked)
        record.told.extend(verdict.headers(self.limits))
        if verdict.over:
            record.limited = verdict.over[0]
            raise verdict.error(self.limits, asked)
        self._verdict = verdict
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.pins.ended(self.incoming.tenant.name, self.record.id)
        if self._verdict is None:
            return
        failed = isinstance(raised, (ApiError, EngineError)) and self.record.ttft_s is None
        used = 0 if failed else self._used()
        tokens = used - self._estimate.total
        self.counter.settle(self.incoming.tenant.name, self._id, self._verdict, tokens)

    def _used(self) -> int:
        """Tokens, reused ones at their weight; what the engine did not say counts as it was estimated."""
        record = self.record
        if record.stages.sent is None:
            return 0
        prompt = self._estimate.prompt if record.prompt_tokens is None else record.prompt_tokens
        reuse = record.reuse
        reused = reuse.reused if reuse is not None and reuse.status == "reported" else None
        spared = (1.0 - self.limits.reused_weight) * min(max(reused or 0, 0), prompt)
        completion = record.completion_tokens
        if completion is None:
            completion = self._estimate.completion
        return min(MOST, max(0, round(prompt - spared)) + max(0, completion))


def _priority(fields: Any) -> int:
    """Among requests of one tenant; what is wrong with the fields is told by who checks them."""
    wanted = fields.get("priority") if isinstance(fields, dict) else None
    return wanted if wanted in (-1, 1) else 0
