"""One index of what replicas hold for all workers of a server: they ask it where a request goes."""

import asyncio
import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from engine_adapters.base import ReuseReport
from engine_adapters.rpc.connection import Connection
from engine_adapters.rpc.errors import RpcError
from engine_adapters.rpc.link import Link
from engine_adapters.rpc.service import Call
from gateway.routing.chain import PromptChain
from gateway.routing.known_runs import KnownRuns
from gateway.routing.kv_changes import Change, Cleared, Silent
from gateway.routing.policies import router_of
from gateway.routing.prefix_router import PrefixRouter
from gateway.routing.prompt_chain import chained
from gateway.routing.router import Decision, HearsReplicas, RemembersPrompts, RouteAsk, Router
from gateway.routing.settings import RoutingSettings
from gateway.routing.told import told_as, told_from
from gateway.tenants.tenant import Tenant

log = logging.getLogger("kvgate.workers")

_TIMEOUT_S = 1.0
_numbers = itertools.count(1)  # of this process's choices, whichever engine they are of
_COUNTED = np.empty(0, dtype=np.int32)  # says that the prompt is hashed by its tokens


class RoutingKeeper:
    """The routers, in the process that all workers are connected to."""

    def __init__(self) -> None:
        self._routers: dict[str, OrderedDict[RoutingSettings, Router]] = {}  # by engine
        self._sent: dict[Connection, dict[int, tuple[Router, Decision]]] = {}
        # Who told of a replica, and how often.
        self._heard: dict[tuple[str, str], tuple[Connection, int]] = {}

    def calls(self) -> dict[str, Call]:
        """For a `Service`."""
        return {
            "routing.choose": self._choose,
            "routing.first_token": self._first_token,
            "routing.ended": self._ended,
            "routing.forget": self._forget,
            "routing.forget_prompts": self._forget_prompts,
            "routing.told": self._told,
        }

    def gone(self, connection: Connection) -> None:
        """A worker has ended, and with it all that it had sent."""
        self._silent(connection)
        for router, decision in self._sent.pop(connection, {}).values():
            router.ended(decision, None)

    def _told(
        self,
        connection: Connection,
        settings: dict[str, Any],
        engine: str,
        replica: str,
        number: int,
        changes: list[list[Any]],
    ) -> None:
        """What a replica says, by the one worker that listens; `number` counts up, so that what is lost is noticed."""
        router = self._router(engine, msgspec.convert(settings, RoutingSettings))
        if not isinstance(router, HearsReplicas):
            return
        before = self._heard.get((engine, replica))
        self._heard[engine, replica] = connection, number
        missed = before is not None and before != (connection, number - 1)
        lost: list[Change] = [Cleared(), Silent()] if missed else []
        router.told(replica, [*lost, *told_from(changes)])

    def _silent(self, connection: Connection) -> None:
        for (engine, replica), (listener, _) in self._heard.items():
            for router in self._routers[engine].values() if listener is connection else ():
                if isinstance(router, HearsReplicas):
                    router.told(replica, [Silent()])

    async def _choose(
        self,
        connection: Connection,
        number: int,
        settings: dict[str, Any],
        ask: dict[str, Any],
        candidates: list[str],
    ) -> Decision:
        router = self._router(ask["engine"], msgspec.convert(settings, RoutingSettings))
        decision = await router.choose(_ask_of(ask), candidates)
        self._sent.setdefault(connection, {})[number] = (router, decision)
        return msgspec.structs.replace(decision, token=number)

    def _first_token(self, connection: Connection, number: int) -> None:
        found = self._sent.get(connection, {}).get(number)
        if found is not None:
            found[0].first_token(found[1])

    def _ended(self, connection: Connection, number: int, reuse: dict[str, Any] | None) -> None:
        found = self._sent.get(connection, {}).pop(number, None)
        if found is not None:
            found[0].ended(found[1], None if reuse is None else msgspec.convert(reuse, ReuseReport))

    def _forget(self, _: Connection, engine: str, replica: str) -> None:
        for router in self._routers.get(engine, {}).values():
            router.forget(replica)

    def _forget_prompts(self, _: Connection, engine: str) -> None:
        for router in self._routers.get(engine, {}).values():
            if isinstance(router, RemembersPrompts):
                router.forget_prompts()

    def _router(self, engine: str, settings: RoutingSettings) -> Router:
        """Two for each engine at most: while a configuration comes, workers do not all have the same."""
        known = self._routers.setdefault(engine, OrderedDict())
        router = known.get(settings)
        if router is None:
            router = known[settings] = router_of(settings)
        known.move_to_end(settings)
        if len(known) > 2:
            known.popitem(last=False)
        return router


class WorkerRouter:
    """As `Router` says, for one worker. `own` goes on where the others' index is away.

    Where one replica was all that there ever was, there is nothing to ask.
    """

    def __init__(self, link: Link, engine: str, own: PrefixRouter) -> None:
        self._link = link
        self._engine = engine
        self.own = own
        self._runs = KnownRuns()
        self._several = False
        self._away = False
        self._numbers: dict[str, int] = {}  # of what was told of each replica

    async def choose(self, ask: RouteAsk, candidates: Sequence[str]) -> Decision:
        """One of `candidates`."""
        self._several = self._several or len(candidates) > 1
        if not self._several:
            return await self.own.choose(ask, candidates)
        chain = await chained(ask, self._runs.digests) if ask.prompt else None
        number = next(_numbers)
        args = (number, self.own.settings, _sent(ask, chain), list(candidates))
        try:
            answer = await self._link.call("routing.choose", *args, timeout_s=_TIMEOUT_S)
        except asyncio.CancelledError:
            self._link.tell("routing.ended", number, None)  # it may count there
            raise
        except RpcError as error:
            self._link.tell("routing.ended", number, None)
            self._say(error)
            return await self.own.choose(msgspec.structs.replace(ask, chain=chain), candidates)
        self._away = False
        return msgspec.convert(answer, Decision)

    def first_token(self, decision: Decision) -> None:
        """The replica has begun to answer."""
        if isinstance(decision.token, int):
            self._link.tell("routing.first_token", decision.token)
        else:
            self.own.first_token(decision)

    def ended(self, decision: Decision, reuse: ReuseReport | None) -> None:
        """The request has ended there."""
        if isinstance(decision.token, int):
            self._link.tell("routing.ended", decision.token, reuse)
        else:
            self.own.ended(decision, reuse)

    def forget(self, replica: str) -> None:
        """It has no prefix any more."""
        self.own.forget(replica)
        self._link.tell("routing.forget", self._engine, replica)

    def forget_prompts(self) -> int:
        """As `RemembersPrompts` says; what the others' index keeps goes, too, and is not counted."""
        self._link.tell("routing.forget_prompts", self._engine)
        return self.own.forget_prompts() + self._runs.clear()

    def _say(self, error: RpcError) -> None:
        if not self._away:
            fields = {"engine": self._engine, "error": str(error)}
            log.error("THE SHARED INDEX IS AWAY: this worker routes alone", extra={"fields": fields})
        self._away = True


class ListeningRouter(WorkerRouter):
    """Of the one worker that listens to what replicas say of their caches: it passes that on."""

    def told(self, replica: str, changes: Sequence[Change]) -> None:
        """As `HearsReplicas` says; its own index, which goes on alone where the others' is away, is not told."""
        numbers = self._numbers
        numbers[replica] = numbers.get(replica, 0) + 1
        self._link.tell(
            "routing.told", self.own.settings, self._engine, replica, numbers[replica], told_as(changes)
        )


def shared_router(link: Link, *, listens: bool = False) -> Callable[[str, Router], Router]:
    """For one worker: from an engine's name and its router to one that all workers share, where there is such."""

    def share(engine: str, router: Router) -> Router:
        kind = ListeningRouter if listens else WorkerRouter
        return kind(link, engine, router) if isinstance(router, PrefixRouter) else router

    return share


def _sent(ask: RouteAsk, chain: PromptChain | None) -> dict[str, Any]:
    return {
        "request_id": ask.request_id,
        "engine": ask.engine,
        "model": ask.model,
        "tenant": ask.tenant.name,
        "group": ask.tenant.group,
        "session": ask.session,
        "streams": ask.streams,
        "counted": ask.tokens is not None,
        "hints": dict(ask.hints),
        "seed": ask.seed,
        "chain": None if chain is None else chain.dump(),
    }


def _ask_of(sent: dict[str, Any]) -> RouteAsk:
    chain = sent["chain"]
    return RouteAsk(
        request_id=sent["request_id"],
        engine=sent["engine"],
        model=sent["model"],
        body={},
        size=0,
        tenant=Tenant(sent["tenant"], sent["group"]),
        tokens=_COUNTED if sent["counted"] else None,
        session=sent["session"],
        hints=sent["hints"],
        seed=sent["seed"],
        streams=sent["streams"],
        prompt=chain is not None,
        chain=None if chain is None else PromptChain.load(chain),
    )
