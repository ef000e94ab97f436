"""Counting for all gateways together, in Redis; alone while that is away."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.limits.book import share
from gateway.limits.counter import LocalCounter
from gateway.limits.known import NOTHING, Used, left
from gateway.limits.tenant_limits import TenantLimits
from gateway.limits.verdict import Kind, Verdict
from gateway.limits.window import LASTS
from gateway.shared_state.errors import AwayError, SharedStateError
from gateway.shared_state.scripts import Script

if TYPE_CHECKING:  # it brings the redis package with it
    from gateway.shared_state.shared_state import SharedState

log = logging.getLogger("kvgate.gateway")

LEASE_S = 30  # a slot of a gateway that says nothing any more is free after this
BEAT_S = 5.0
_KINDS: tuple[Kind, ...] = ("requests", "tokens", "concurrency")


def _script(name: str) -> Script:
    return Script.packaged("gateway.limits", "window.lua", f"{name}.lua")


ADMIT, SETTLE, BEAT = map(_script, ("admit", "settle", "beat"))
PRESENT = Script.packaged("gateway.limits", "present.lua")


class SharedCounter:
    """Exact across gateways: one round trip a request, by the server's clock.

    What this gateway let pass is counted here, too, and what the server said of the others. It says what may still pass
    while the server is away, within this gateway's share of the limit and of what was left of it; and it is told to a
    server that comes back, or that has lost it.
    """

    def __init__(
        self,
        state: "SharedState",
        *,
        lease_s: int = LEASE_S,
        beat_s: float = BEAT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._lease_s = lease_s
        self._beat_s = beat_s
        self._clock = clock
        self._local = LocalCounter(clock)
        self._since = LocalCounter(clock)  # of that, what passed since the server is away
        self._others: dict[str, tuple[float, Used]] = {}  # by tenant, what passed elsewhere, and as of when
        self._id = secrets.token_hex(6)
        self._seconds: dict[
            str, int
        ] = {}  # by request, that the server counts it in; admitted elsewhere: none
        self._slots: dict[str, set[str]] = {}  # by tenant, requests with a slot there
        self._refused = ""  # what the server said last
        self._beating: asyncio.Task[None] | None = None
        self.gateways = 1  # last seen, this one among them

    def start(self) -> None:
        """Say that this gateway is there, from now on."""
        self._beating = asyncio.create_task(self._beat())

    async def aclose(self) -> None:
        """Say so no more."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])

    async def admit(self, tenant: str, limits: TenantLimits, request: str, tokens: int) -> Verdict:
        """As `Counter` says."""
        owed = self._local.book(tenant).take_owed()
        try:
            asked = self._ask(tenant, limits, request, tokens, owed)
        except SharedStateError:
            return self._alone(tenant, limits, request, tokens, owed)
        try:
            answer = await asyncio.shield(asked)  # what was sent counts there, whether anyone waits or not
        except asyncio.CancelledError:
            asked.add_done_callback(partial(self._left, tenant, limits, request, tokens, owed))
            raise
        except SharedStateError as error:
            self._say(error)
            return self._alone(tenant, limits, request, tokens, owed)
        return self._taken(tenant, limits, request, tokens, _verdict(answer))

    def settle(self, tenant: str, request: str, verdict: Verdict, tokens: int) -> None:
        """As `Counter` says."""
        self._local.settle(tenant, request, verdict, tokens)
        if request in self._since.book(tenant).running:
            self._since.settle(tenant, request, verdict, tokens)
        slots = self._slots.get(tenant, set())
        second = self._seconds.pop(request, None)
        if second is None:
            self._local.book(tenant).owe(0, tokens)
            second, tokens = 0, 0
            if request not in slots:
                return
        slots.discard(request)
        self._state.pipe.post(
            SETTLE, self._keys(tenant), (self._slot(request), second, tokens, self._lease_s)
        )

    def _ask(
        self, tenant: str, limits: TenantLimits, request: str, tokens: int, owed: tuple[int, int]
    ) -> "asyncio.Future[Any]":
        bounds = (limits.requests_per_minute, limits.tokens_per_minute, limits.concurrency)
        args: tuple[str | int, ...] = (
            self._id,
            self._slot(request),
            *(-1 if bound is None else bound for bound in bounds),
            tokens,
            self._lease_s,
            *owed,
            *self._local.told(tenant),
        )
        return self._state.pipe.begin(ADMIT, self._keys(tenant), args)

    def _taken(
        self, tenant: str, limits: TenantLimits, request: str, tokens: int, verdict: Verdict
    ) -> Verdict:
        """What the server said, kept here as well."""
        if self._since.books:
            self._since = LocalCounter(self._clock)  # it knows of that now
        second = verdict.second
        if not verdict.over:
            self._seconds[request] = second
            self._hold_slot(tenant, limits, request)
            second = self._local.entered(tenant, request, tokens).second
        self._others[tenant] = self._clock(), Used(verdict.requests, verdict.tokens) - self._here(tenant)
        return replace(verdict, second=second)

    def _alone(
        self, tenant: str, limits: TenantLimits, request: str, tokens: int, owed: tuple[int, int]
    ) -> Verdict:
        book = self._local.book(tenant)
        book.owe(*owed)
        since = self._since.book(tenant)
        verdict = since.judge(left(limits, self._known(tenant), self.gateways), tokens, self._clock())
        if verdict.over:
            used = self._here(tenant) + self._elsewhere(tenant)
            return replace(verdict, requests=used.requests, tokens=used.tokens)
        verdict = self._local.judged(tenant, share(limits, self.gateways), request, tokens)
        if not verdict.over:
            since.enter(request, tokens, self._clock())
            book.owe(1, tokens)
            self._hold_slot(tenant, limits, request)
        return verdict

    def _known(self, tenant: str) -> Used:
        """What all gateways used before the server went, as far as that is known here."""
        now, since = self._clock(), self._since.book(tenant)
        used = Used(since.requests.used(now), since.tokens.used(now), len(since.running))
        return self._elsewhere(tenant) + (self._here(tenant) - used)

    def _elsewhere(self, tenant: str) -> Used:
        at, others = self._others.get(tenant, (0.0, NOTHING))
        return others if self._clock() < at + LASTS else NOTHING

    def _here(self, tenant: str) -> Used:
        now, book = self._clock(), self._local.book(tenant)
        return Used(book.requests.used(now), book.tokens.used(now), len(book.running))

    def _left(
        self,
        tenant: str,
        limits: TenantLimits,
        request: str,
        tokens: int,
        owed: tuple[int, int],
        asked: "asyncio.Future[Any]",
    ) -> None:
        """The client left while the server was asked: nothing of its request counts."""
        if asked.cancelled() or asked.exception() is not None:
            self._local.book(tenant).owe(*owed)
            return
        verdict = self._taken(tenant, limits, request, tokens, _verdict(asked.result()))
        if not verdict.over:
            self.settle(tenant, request, verdict, -tokens)

    def _hold_slot(self, tenant: str, limits: TenantLimits, request: str) -> None:
        if limits.concurrency is not None:
            self._slots.setdefault(tenant, set()).add(request)

    async def _beat(self) -> None:
        keys = [self._state.options.key("gateways")]
        while True:
            try:
                there = await self._state.pipe.run(PRESENT, keys, (self._id, int(3 * self._beat_s) + 1))
                self.gateways = max(1, int(there))
            except SharedStateError as error:
                self._say(error)
            now = self._clock()
            self._others = {name: known for name, known in self._others.items() if now < known[0] + LASTS}
            self._slots = {tenant: running for tenant, running in self._slots.items() if running}
            for tenant, running in self._slots.items():
                self._state.pipe.post(BEAT, self._keys(tenant), (self._lease_s, *map(self._slot, running)))
            await asyncio.sleep(self._beat_s)

    def _slot(self, request: str) -> str:
        """What no other gateway calls one of its requests."""
        return f"{self._id}:{request}"

    def _keys(self, tenant: str) -> list[str]:
        # Braces: the part that decides where a key lives, so that both always live together.
        key = self._state.options.key
        return [key("limits", f"{{{tenant}}}", "used"), key("limits", f"{{{tenant}}}", "running")]

    def _say(self, error: SharedStateError) -> None:
        if isinstance(error, AwayError) or str(error) == self._refused:
            return  # the former is said by who found it out
        self._refused = str(error)
        fields = {"error": str(error)[:300]}
        log.error("the shared state refuses to count: this gateway does it alone", extra={"fields": fields})


def _verdict(answer: Any) -> Verdict:
    numbers = [int(each) for each in answer]
    over = tuple(kind for kind, said in zip(_KINDS, numbers, strict=False) if said)
    requests, tokens, requests_ms, tokens_ms, wait_ms, second = numbers[3:]
    return Verdict(over, requests, tokens, requests_ms / 1000, tokens_ms / 1000, wait_ms / 1000, second)
