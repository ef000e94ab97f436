"""All replicas of one engine, as a request sees them: one name, the same models, any of them can answer."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from engine_adapters.base import Health
from engine_adapters.errors import EngineNotReadyError
from engine_adapters.remote.relay import ROUTES, Route
from gateway.relay.remote import Remote
from gateway.routing.least_loaded import LeastLoaded
from gateway.routing.router import Decision, RouteAsk, Router


class EnginePool:
    """One configured engine. Used from one event loop."""

    def __init__(self, name: str, replicas: Sequence[Remote], router: Router | None = None) -> None:
        self.name = name
        self.replicas = tuple(replicas)
        self.router: Router = router or LeastLoaded()

    @property
    def models(self) -> Mapping[str, str]:
        """Names that clients use, each with the engine's own; empty while nothing is known."""
        return next((each.models for each in self.replicas if each.models), {})

    @property
    def routes(self) -> Collection[Route]:
        """That engines of its kind have."""
        return self.replicas[0].engine.routes if self.replicas else ROUTES

    @property
    def context_length(self) -> int | None:
        """Tokens that every replica takes; None: not known."""
        return min((each.context_length for each in self.replicas if each.context_length), default=None)

    @property
    def block_size(self) -> int | None:
        """Tokens; None: not known."""
        return next((each.block_size for each in self.replicas if each.block_size is not None), None)

    @property
    def detail(self) -> str:
        """Why it takes no requests, in words for an operator."""
        return "; ".join(dict.fromkeys(each.detail for each in self.replicas)) or "it has no replica now"

    def start(self) -> None:
        """Begin to ask the replicas. Called on the event loop that requests run on."""
        for each in self.replicas:
            each.start()

    async def aclose(self) -> None:
        """Ask no more, and close all connections; requests that run end with an error."""
        await asyncio.gather(*(each.aclose() for each in self.replicas))

    async def health(self) -> Health:
        """Whether any replica takes requests now."""
        found = await asyncio.gather(*(each.health() for each in self.replicas))
        return next((each for each in found if each.ready), found[0] if found else Health(False, self.detail))

    async def choose(
        self, ask: RouteAsk, tried: frozenset[str] = frozenset(), only: str | None = None
    ) -> tuple[Remote, Decision]:
        """Where `ask` goes, but for replicas that were `tried`; raises EngineNotReadyError where none is left.

        `only`: the replica which has what the request goes on from; None: any can answer.

        Whoever asks tells `router.ended` of the decision, once.
        """
        able = {
            each.replica: each
            for each in self.replicas
            if each.replica not in tried and only in (None, each.replica)
        }
        if not able:
            raise EngineNotReadyError(f"The engine {self.name} has no replica that takes requests now.")
        decision = await self.router.choose(ask, list(able))
        return able[decision.replica], decision
