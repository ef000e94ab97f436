"""All replicas of one engine, as a request sees them: one name, the same models, any of them can answer."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from engine_adapters.base import Health, ReuseReport
from engine_adapters.errors import EngineNotReadyError
from engine_adapters.remote.http_engine import HttpEngine
from engine_adapters.remote.relay import ROUTES, Route
from gateway.kv_events.options import KvEventOptions
from gateway.relay.guard import OPEN_GUARD, Guard
from gateway.relay.remote import Remote
from gateway.replicas.address import ReplicaAddress
from gateway.replicas.blame import AnsweredLately
from gateway.replicas.breaker import State
from gateway.replicas.discovery.discovery import Discovery
from gateway.replicas.member import Member
from gateway.replicas.outliers import is_slow, times_slower
from gateway.replicas.policy import PoolPolicy
from gateway.replicas.retry_budget import RetryBudget
from gateway.replicas.selection import at_work, candidates, ejected, may_be_ejected
from gateway.replicas.visit import Visit
from gateway.routing.kv_changes import Change
from gateway.routing.least_loaded import LeastLoaded
from gateway.routing.prompt_tokens import PromptTokens
from gateway.routing.router import HearsReplicas, RemembersPrompts, RouteAsk, Router
from gateway.turns import OTHERS_FIRST

if TYPE_CHECKING:  # it needs the extra `events`
    from gateway.kv_events.followers import Followers, TellOf

log = logging.getLogger("kvgate.gateway")

_ASK_AGAIN_S = 5.0  # a source of replicas that has failed in an unknown way
_DISCOVERED_S = 10.0  # what others wait for the first list of replicas

MakeReplica = Callable[[ReplicaAddress], Remote]


class EnginePool:
    """One configured engine. Used from one event loop.

    `discovery` says which replicas there are, each made by `make`; None: those given are all, for ever.
    `names` are what clients call its models, known even while no replica is there.
    """

    def __init__(
        self,
        name: str,
        replicas: Sequence[Remote] = (),
        router: Router | None = None,
        policy: PoolPolicy | None = None,
        *,
        discovery: Discovery | None = None,
        make: MakeReplica | None = None,
        names: Mapping[str, str] | None = None,
        guard: Guard = OPEN_GUARD,
        tokens: PromptTokens | None = None,
        events: KvEventOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert (discovery is None) == (make is None)
        self.name = name
        self.router: Router = router or LeastLoaded()
        self.policy = policy or PoolPolicy()
        self.guard = guard
        self.tokens = tokens  # makes its prompts; None: they are known by their text alone
        self.events = _followers(events, self._told)  # of what replicas say they hold; None: they do not
        self.budget = RetryBudget(self.policy.retries, clock)
        self.retries: Counter[str] = Counter()  # by reason
        self.hedges: Counter[str] = Counter()  # by outcome
        self.requests = 0
        self._running = 0  # requests, wherever
        self.discovery = discovery
        self._make = make
        self._names = dict(names or {})
        self._clock = clock
        self._answered = AnsweredLately(self.policy.breaker.window_s, clock)
        self._members: list[Member] = []
        self._addresses: dict[str, ReplicaAddress] = {}  # of discovered ones, by replica
        self._leaving: set[asyncio.Task[None]] = set()
        self._retired: list[Member] = []
        self._remotes: tuple[Remote, ...] = ()  # of the members
        self._discovered = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._started = False
        for remote in replicas:
            self._add(remote)

    @property
    def replicas(self) -> tuple[Remote, ...]:
        """Those there are now."""
        return self._remotes

    @property
    def members(self) -> tuple[Member, ...]:
        """The same, each with what is known of its health."""
        return tuple(self._members)

    @property
    def models(self) -> Mapping[str, str]:
        """Names that clients use, each with the engine's own; empty while nothing is known."""
        for each in self._remotes:
            if known := each.models:
                if not self._names:
                    self._names = dict(known)  # and they are still its models when no replica is left
                return known
        return self._names

    @property
    def routes(self) -> Collection[Route]:
        """That engines of its kind have."""
        return self.replicas[0].engine.routes if self.replicas else ROUTES

    @property
    def context_length(self) -> int | None:
        """Tokens that every replica takes; None: not known."""
        return min((each.context_length for each in self.replicas if each.context_length), default=None)

    @property
    def longest_context(self) -> int | None:
        """Tokens that some replica takes; None: not known of every one."""
        known = [each.context_length for each in self._remotes]
        found = [length for length in known if length is not None]
        return max(found) if found and len(found) == len(known) else None

    @property
    def block_size(self) -> int | None:
        """Tokens; None: not known."""
        for each in self._remotes:
            if (size := each.block_size) is not None:
                return size
        return None

    @property
    def detail(self) -> str:
        """Why it takes no requests, in words for an operator."""
        return "; ".join(dict.fromkeys(each.detail for each in self.replicas)) or "it has no replica now"

    def start(self) -> None:
        """Begin to look for replicas and to ask them. Called on the event loop that requests run on."""
        self._started = True
        for each in self.replicas:
            self._start(each)
        if self.discovery is not None:
            self._task = asyncio.create_task(self._discover(self.discovery))

    async def asked(self) -> None:
        """Returns when it is known which replicas there are, or not to be known soon, and each was asked once."""
        try:
            async with asyncio.timeout(_DISCOVERED_S):
                if self.discovery is not None:
                    await self._discovered.wait()
        except TimeoutError:
            log.warning("an engine has no replicas yet", extra={"fields": {"engine": self.name}})
        for each in self.replicas:
            await each.asked.wait()

    async def aclose(self) -> None:
        """Ask no more, and close all connections; requests that run end with an error."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        left = [*self._members, *self._retired]
        if self.events is not None:
            await self.events.aclose()
        await asyncio.gather(*(each.remote.aclose() for each in left), *self._leaving)

    async def health(self) -> Health:
        """Whether any replica takes requests now."""
        found = await asyncio.gather(*(each.health() for each in self.replicas))
        return next((each for each in found if each.ready), found[0] if found else Health(False, self.detail))

    def replica(self, id_: str) -> Remote | None:
        """The one of this id; None: it has gone."""
        return next((each for each in self.replicas if each.replica == id_), None)

    @property
    def at_work(self) -> int:
        """Replicas that get requests now."""
        return at_work(self._members, self.policy.max_ejected)

    async def choose(
        self,
        ask: RouteAsk,
        tried: frozenset[str] = frozenset(),
        only: str | None = None,
        room: int | None = None,
    ) -> Visit:
        """Where `ask` goes, but for replicas that were `tried`; `only`: there and nowhere else.

        `room`: where fewer requests than that run, if there is such a replica; None: wherever.

        Raises EngineNotReadyError where nobody is left. Whoever asks tells the visit how it ended, once.
        """
        if only is None:
            able = candidates(self._members, tried, ask.model, self.policy.max_ejected, room)
        else:
            able = [each for each in self._members if each.id == only and each.remote.ready]
        if not able:
            raise EngineNotReadyError(f"The engine {self.name} has no replica that takes requests now.")
        visit = await self._visit(ask, able)
        if visit is None:
            return await self.choose(ask, tried, only, room)
        if self._running > 1:
            # Requests that came together are all prepared and routed before one is sent: done whole, one behind the
            # other, each would find the processor's caches full of other steps.
            try:
                await OTHERS_FIRST
            except BaseException:
                visit.ended("unknown")
                raise
        return visit

    async def _visit(self, ask: RouteAsk, able: Sequence[Member]) -> Visit | None:
        """None: the replica left the pool while it was chosen."""
        sole = able[0] if len(able) == 1 else None
        probe = None if sole is None else sole.breaker.begin()  # at once: probes have a bound
        try:
            decision = await self.router.choose(ask, [each.id for each in able])
        except BaseException:
            if sole is not None and probe is not None:
                sole.breaker.end(probe, "unknown")
            raise
        member = sole or next(each for each in able if each.id == decision.replica)
        given = probe or member.breaker.begin()
        visit = Visit(decision, member, ask.tenant.name, self.router, given, self._visited)
        self.requests += 1
        self._running += 1
        member.running += 1
        if not member.retired:
            return visit
        visit.ended("unknown")
        return None

    def ttft_of(self, member: Member) -> float | None:
        """Seconds, the median of its newest streams; None: there are too few."""
        return None if member.ttft is None else member.ttft.median(self._clock())

    def waited(self, visit: Visit, seconds: float) -> None:
        """A stream's first token has not come for so long, and nobody waits for it any more."""
        window = visit.member.ttft
        curve = None if window is None else window.curve(self._clock())
        if curve is not None and seconds > curve.at(visit.work()):
            self.took(visit, seconds)  # else it says nothing: it might have come right then

    def took(self, visit: Visit, ttft_s: float) -> None:
        """A stream's first token came after so many seconds at its replica."""
        member, options, now = visit.member, self.policy.outliers, self._clock()
        if member.ttft is None or options is None:
            return
        visit.sample = member.ttft.add(now, ttft_s, visit.work())
        if ttft_s <= options.above_s or (its := member.ttft.curve(now)) is None:
            return  # what is fast makes nobody slow
        others = [
            curve
            for each in self._members
            if each is not member and each.ttft is not None and (curve := each.ttft.curve(now)) is not None
        ]
        room = may_be_ejected(len(self._members), self.policy.max_ejected)
        if len(ejected(self._members, self.policy.max_ejected)) < room and is_slow(its, others, options):
            times = round(times_slower(its, others), 1)
            self._tell(
                "a replica is much slower than the others", member, seconds=member.found_slow(), times=times
            )

    def forget_prompts(self) -> int:
        """Drop what is remembered of prompts, of every tenant: encodings, and tokens that were hashed; how many."""
        hashed = self.router.forget_prompts() if isinstance(self.router, RemembersPrompts) else 0
        return hashed + (0 if self.tokens is None else self.tokens.forget())

    def update(self, addresses: Sequence[ReplicaAddress]) -> None:
        """These are the replicas from now on. Requests that run at others end there in peace."""
        assert self._make is not None
        made = {f"{self.name}/{each.name}": each for each in addresses}
        for member in list(self._members):
            if made.get(member.id) != self._addresses.get(member.id):
                self._retire(member)
        for id_, address in made.items():
            if id_ not in self._addresses:
                remote = self._make(address)
                self._addresses[id_] = address
                self._add(remote)
                if self._started:
                    self._start(remote)
        self._discovered.set()

    async def _discover(self, discovery: Discovery) -> None:
        while True:
            try:
                async with aclosing(discovery.watch()) as lists:
                    async for addresses in lists:
                        self.update(addresses)
            except Exception as error:
                fields = {"engine": self.name, "error": type(error).__name__}
                log.exception(
                    "replicas were said in no known form; it is asked again", extra={"fields": fields}
                )
            await asyncio.sleep(_ASK_AGAIN_S)

    def _add(self, remote: Remote) -> None:
        member = Member(remote, self.policy, self._clock, self._answered)
        remote.changed = lambda ready: self._changed(member, ready)
        self._members.append(member)
        self._remotes = tuple(each.remote for each in self._members)

    def _start(self, remote: Remote) -> None:
        remote.start()
        hears = isinstance(self.router, HearsReplicas)
        if self.events is not None and hears and isinstance(remote.engine, HttpEngine):
            self.events.came(remote.replica, remote.engine.server, partial(_publishers, remote))

    def _told(self, replica: str, changes: Sequence[Change]) -> None:
        if isinstance(self.router, HearsReplicas):
            self.router.told(replica, changes)

    def _retire(self, member: Member) -> None:
        member.retired = True
        self._members.remove(member)
        self._remotes = tuple(each.remote for each in self._members)
        self._addresses.pop(member.id, None)
        if self.events is not None:
            self.events.went(member.id)
        self.router.forget(member.id)
        self._tell("a replica has left its engine", member, running=member.running)
        self._retired.append(member)
        if not member.running:
            self._let_go(member)

    def _let_go(self, member: Member) -> None:
        self._retired.remove(member)
        task = asyncio.get_running_loop().create_task(member.remote.aclose())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _changed(self, member: Member, ready: bool) -> None:
        if not ready:
            member.went()
            if not member.retired:
                self.router.forget(member.id)
                if self.events is not None:
                    self.events.forgot(member.id)
            return
        others = any(each is not member and each.remote.ready for each in self._members)
        member.came(again=others and self.requests > 0)

    def _visited(self, visit: Visit, now: State | None, reuse: ReuseReport | None) -> None:
        member = visit.member
        if visit.sample is not None and member.ttft is not None:
            member.ttft.corrected(visit.sample, visit.work(reuse))
        if self.events is not None:
            self.events.answered(member.id, reuse, member.remote.block_size)
        self._running -= 1
        member.running -= 1
        if now == "closed":
            member.slow_start.begin()
            self._tell("a replica is well again", member)
        elif now == "open":
            wait_s = round(member.breaker.wait_s, 1)
            self._tell("a replica fails; it gets no requests for a while", member, wait_s=wait_s)
        if member.retired and not member.running and member in self._retired:
            self._let_go(member)

    def _tell(self, message: str, member: Member, **fields: object) -> None:
        log.warning(message, extra={"fields": {"engine": self.name, "replica": member.id, **fields}})


def _publishers(remote: Remote) -> int | None:
    """Of KV events, as far as the engine says by now."""
    able = remote.able
    if able is None or able.kv_events is None:
        return None
    return max(1, len(able.publishers)) if able.kv_events else 0


def _followers(options: KvEventOptions | None, tell: "TellOf") -> "Followers | None":
    if options is None:
        return None
    from gateway.kv_events.followers import Followers

    return Followers(options, tell)
