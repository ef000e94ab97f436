"""The directories of all engines, in one server."""

import asyncio

from gateway.directory.directed_router import directed
from gateway.directory.options import DirectoryOptions
from gateway.directory.redis_directory import RedisDirectory, forget_scopes
from gateway.routing.prefix_router import PrefixRouter
from gateway.routing.router import Router
from gateway.shared_state.shared_state import SharedState
from gateway.tenants.purging import Forgotten, PurgeAsk
from gateway.workers.shared_routing import WorkerRouter


class Directories:
    """One for each engine that is routed by prefixes."""

    def __init__(self, state: SharedState, options: DirectoryOptions) -> None:
        self._state = state
        self._options = options
        self._of: dict[str, RedisDirectory] = {}

    def router(self, engine: str, own: Router) -> Router:
        """The one that asks its engine's directory, too; as it is where there is nothing to ask."""
        if not isinstance(own, PrefixRouter | WorkerRouter):
            return own
        directory = self._of.get(engine)
        if directory is None:
            directory = self._of[engine] = RedisDirectory(self._state, engine, self._options)
        return directed(own, directory)

    async def forget(self, ask: PurgeAsk) -> Forgotten:
        """What is told of a tenant's prefixes."""
        if not ask.whole:
            return Forgotten(0, f"kept, since {', '.join(ask.shared_with)} share it", complete=False)
        return Forgotten(await asyncio.to_thread(forget_scopes, self._state, ask.scopes), "keys")
