"""The configuration that requests get. It is changed as a whole, and a request has one of them from begin to end."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.reload.state import ConfigState
from gateway.replicas.pool import EnginePool
from gateway.routing.router import Router
from gateway.settings import GatewaySettings
from gateway.tenants.authenticator import OPEN, Authenticator


@dataclass(frozen=True, slots=True)
class Configured:
    """All that may change while requests run."""

    settings: GatewaySettings = field(default_factory=GatewaySettings)
    pools: tuple[EnginePool, ...] = ()
    tenants: Authenticator = OPEN


Apps: TypeAlias = Mapping[str, ASGIApp]  # by route, each with one configuration in it
Make: TypeAlias = Callable[[Configured], Apps]


@dataclass(slots=True, eq=False)
class Epoch:
    """A configuration from when it came until its last request has ended."""

    configured: Configured
    apps: Apps = field(default_factory=dict)
    running: int = 0  # requests that began in it and have not ended


class Live:
    """Which epoch a request belongs to. Used from one event loop; engines that no epoch has any more are closed."""

    def __init__(
        self,
        configured: Configured,
        state: ConfigState | None = None,
        router: Callable[[str, Router], Router] = lambda _, own: own,
    ) -> None:
        """`router` gives who chooses an engine's replicas, from its name and who would if this process was alone."""
        self.state = state  # None: there is no file that could be loaded again
        self._router = router
        self.share(configured)
        self._epochs = [Epoch(configured)]
        self._make: Make = lambda _: {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def now(self) -> Configured:
        """What a request that comes now gets."""
        return self.epoch.configured

    @property
    def epoch(self) -> Epoch:
        """The newest; whoever counts a request in `running` calls `ended` behind it."""
        return self._epochs[-1]

    def serve(self, make: Make) -> None:
        """`make` the routes of the configuration there is, and of each that comes; it is called where requests run."""
        self._make = make
        self.epoch.apps = make(self.now)

    def put(self, configured: Configured) -> None:
        """Requests get this from now on; its engines have been started. Those that run go on with what they have."""
        self.share(configured)
        self._epochs.append(Epoch(configured, self._make(configured)))
        self._close_unused()

    def ended(self, epoch: Epoch) -> None:
        """A request of `epoch` has ended."""
        epoch.running -= 1
        if not epoch.running and epoch is not self.epoch:
            self._close_unused()

    async def aclose(self) -> None:
        """Close all engines, those of requests that still run among them; again is of no effect."""
        pools = {pool for epoch in self._epochs for pool in epoch.configured.pools}
        await asyncio.gather(*(pool.aclose() for pool in pools), *self._closing)

    def share(self, configured: Configured) -> None:
        """Let others have a part in the choice of replicas, before its engines are started; again is of no effect."""
        for pool in configured.pools:
            pool.router = self._router(pool.name, pool.router)

    def _close_unused(self) -> None:
        gone = [epoch for epoch in self._epochs[:-1] if not epoch.running]
        self._epochs = [epoch for epoch in self._epochs if epoch not in gone]
        kept = {pool for epoch in self._epochs for pool in epoch.configured.pools}
        for pool in {pool for epoch in gone for pool in epoch.configured.pools} - kept:
            task = asyncio.get_running_loop().create_task(pool.aclose())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


class EpochRoute:
    """One route: each request is answered by the app of the epoch that it came in."""

    def __init__(self, route: str, live: Live) -> None:
        self._route = route
        self._live = live

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        epoch = self._live.epoch
        app = epoch.apps.get(self._route)
        if app is None:
            raise HTTPException(404)
        epoch.running += 1
        try:
            await app(scope, receive, send)
        finally:
            self._live.ended(epoch)
