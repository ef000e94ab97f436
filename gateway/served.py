"""The models behind the HTTP surface: the embedded one, absent while it loads, and those of engines behind HTTP."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from engine_adapters.base import Capabilities, EngineAdapter, Health
from engine_adapters.errors import EngineNotReadyError
from gateway.aliases import Alias
from gateway.errors import ApiError
from gateway.prompts import PromptSource
from gateway.relay.remote import Remote
from gateway.replicas.pool import EnginePool
from gateway.tenants.tenant import DEFAULT, Tenant

Counters: TypeAlias = Callable[[], Awaitable[Mapping[str, float]]]

EMBEDDED = "embedded"  # the embedded engine's name where configuration gives it none
_MAX_NAMED = 20  # models that an error names


@dataclass(frozen=True, slots=True)
class Backend:
    """One engine in this process with what makes its prompts."""

    engine: EngineAdapter
    prompts: PromptSource
    name: str = EMBEDDED
    tokenizer: Path | None = None  # folder that `prompts` were made from; None: not from one

    def capabilities(self) -> Capabilities:
        """What the engine can do; raises EngineNotReadyError before it is known."""
        return self.engine.capabilities()


class Found(msgspec.Struct, frozen=True):
    """Who has a model, and its name there."""

    target: "Backend | EnginePool"
    model: str  # aliases resolved; empty: the request names none


Progress: TypeAlias = Callable[[str], None]
# Called on a thread. What has to be made on the event loop is given back as a coroutine.
Load: TypeAlias = Callable[[Progress], Backend | Coroutine[Any, Any, Backend]]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model that can be asked for."""

    name: str
    context_length: int | None  # tokens; None: not known


@dataclass(slots=True)
class _Process:
    """What this process has of its own, whatever the configuration says."""

    backend: Backend | None
    embedded: bool  # whether there is a backend, or will be one
    closing: bool = False
    draining: str | None = None  # why it is not ready although it takes requests; None: it is ready
    detail: str = "the model is being loaded"


class Served:
    """What is served now. Set from the event loop, by whoever loads the engine.

    `pools` are there from the start, whether they answer or not; `embedded` says whether a backend will be put.
    """

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        pools: Sequence[EnginePool] = (),
        embedded: bool = True,
        aliases: Mapping[str, Alias] | None = None,
    ) -> None:
        self.pools = tuple(pools)  # another configuration may bring others, and other aliases
        self.aliases = aliases or {}
        self._process = _Process(backend, embedded or backend is not None)

    def over(self, pools: Sequence[EnginePool], aliases: Mapping[str, Alias]) -> "Served":
        """These, whatever comes later, with the one backend there is."""
        fixed = Served(pools=pools, aliases=aliases)
        fixed._process = self._process
        return fixed

    @property
    def remotes(self) -> tuple[Remote, ...]:
        """Replicas of all engines behind HTTP."""
        return tuple(each for pool in self.pools for each in pool.replicas)

    def put(self, backend: Backend) -> None:
        """Serve `backend` from now on."""
        self._process.backend = backend
        self._process.embedded = True
        self._process.closing = False

    def drain(self, detail: str) -> None:
        """Say that it is not ready, so that nobody new is sent here; whoever comes is served."""
        self._process.draining = detail

    @property
    def draining(self) -> bool:
        """Whether this process is about to end."""
        return self._process.draining is not None or self._process.closing

    def withdraw(self, detail: str) -> Backend | None:
        """Refuse new requests from now on; `detail` says why, in words for an operator. Running ones go on."""
        backend, self._process.backend = self._process.backend, None
        self._process.detail = detail
        self._process.closing = True
        return backend

    def current(self) -> Backend:
        """The backend in this process; raises EngineNotReadyError while there is none."""
        if self._process.backend is None:
            raise EngineNotReadyError(self._process.detail)
        return self._process.backend

    def find(self, model: str, tenant: Tenant = DEFAULT) -> Backend | EnginePool:
        """Who has `model`; raises EngineNotReadyError, or ApiError 404 for a name that nobody has.

        A name that `tenant` may not use is one that nobody has, whether it is there or not.
        """
        return self.resolve(model, tenant).target

    def resolve(self, model: str, tenant: Tenant = DEFAULT) -> Found:
        """Who has `model`, which may be an alias. Raises as `find` does."""
        if not tenant.may_use(model):
            raise self._not_found(model, tenant)
        alias = self.aliases.get(model)
        if alias is not None:
            return self._resolve_alias(model, alias)
        if self._process.backend is not None and self._process.backend.capabilities().model == model:
            return Found(self._process.backend, model)
        if self._process.closing:
            raise EngineNotReadyError(self._process.detail)
        for pool in self.pools:
            if model in pool.models:
                return Found(pool, model)
        raise self._not_found(model, tenant)

    def only(self, tenant: Tenant = DEFAULT) -> Found:
        """The one engine there is, for requests that need not name a model; raises EngineNotReadyError, or 400."""
        if self._process.closing or (self._process.embedded and self._process.backend is None):
            raise EngineNotReadyError(self._process.detail)
        engines: list[Backend | EnginePool] = [*self.pools]
        engines += [] if self._process.backend is None else [self._process.backend]
        # Who may use some models only has to say which one it is.
        if len(engines) != 1 or tenant.models is not None:
            message = "Missing required parameter: 'model'. There are several engines here."
            raise ApiError(400, message, param="model", code="missing_required_parameter")
        return Found(engines[0], "")

    def _resolve_alias(self, name: str, alias: Alias) -> Found:
        if self._process.closing:
            raise EngineNotReadyError(self._process.detail)
        pool = next((pool for pool in self.pools if pool.name == alias.engine), None)
        if pool is None:
            if (
                self._process.backend is not None
                and self._process.backend.capabilities().model == alias.model
            ):
                return Found(self._process.backend, alias.model)
        elif alias.model in pool.models:
            return Found(pool, alias.model)
        if self._process.backend is None if pool is None else not pool.models:
            raise EngineNotReadyError(f"what {alias.engine} serves is not known yet")
        message = (
            f"The model '{name[:200]}' stands for '{alias.model[:200]}' of the engine {alias.engine}, "
            "which does not have it now."
        )
        raise ApiError(404, message, param="model", code="model_not_found")

    def _not_found(self, model: str, tenant: Tenant) -> Exception:
        if self._process.embedded and self._process.backend is None:
            return EngineNotReadyError(self._process.detail)
        unknown = [pool.name for pool in self.pools if not pool.models]
        if unknown:
            # Which engines there are is no business of a tenant: some may be others' alone.
            named = ", ".join(unknown) if tenant is DEFAULT else "every engine"
            return EngineNotReadyError(f"what {named} serves is not known yet")
        names = [f"'{each.name}'" for each in self.models() if tenant.may_use(each.name)]
        has = ", ".join(names[:_MAX_NAMED]) + (", ..." if len(names) > _MAX_NAMED else "")
        message = (
            f"The model '{model[:200]}' does not exist here; this server has {has or 'none for this key'}."
        )
        return ApiError(404, message, param="model", code="model_not_found")

    def local(self) -> list[Backend]:
        """The backend in this process, where there is one."""
        return [] if self._process.backend is None else [self._process.backend]

    def local_models(self) -> list[str]:
        """The one of the backend in this process, where there is one."""
        return [each.capabilities().model for each in self.local()]

    def models(self) -> list[ServedModel]:
        """All models that can be asked for now, each name once; raises EngineNotReadyError where there are none."""
        found: dict[str, ServedModel] = {}
        if self._process.backend is not None:
            able = self._process.backend.capabilities()
            found[able.model] = ServedModel(able.model, able.context_length)
        for pool in () if self._process.closing else self.pools:
            for name in pool.models:
                found.setdefault(name, ServedModel(name, pool.context_length))
        found.update(self._aliases_now())
        if not found:
            raise EngineNotReadyError(
                self._process.detail if self._process.embedded or self._process.closing else self._waiting()
            )
        return list(found.values())

    def _aliases_now(self) -> dict[str, ServedModel]:
        """Aliases whose models are there."""
        known: dict[str, ServedModel] = {}
        for name in self.aliases:
            try:
                target = self.resolve(name).target
            except (ApiError, EngineNotReadyError):
                continue
            able = target if isinstance(target, EnginePool) else target.capabilities()
            known[name] = ServedModel(name, able.context_length)
        return known

    def _waiting(self) -> str:
        return "; ".join(f"{pool.name}: {pool.detail}" for pool in self.pools) or "no engine is configured"

    def counters(self) -> dict[str, Counters]:
        """How to ask each engine that is there for its own counters, by its name."""
        remotes = () if self._process.closing else self.remotes
        found: dict[str, Counters] = {remote.replica: remote.engine.counters for remote in remotes}
        if self._process.backend is not None:
            found[self._process.backend.name] = self._process.backend.engine.counters
        return found

    async def health(self) -> Health:
        """Whether a generation would be taken now, by any engine."""
        if self._process.closing:
            return Health(ready=False, detail=self._process.detail)
        if self._process.draining is not None:
            return Health(ready=False, detail=self._process.draining)
        asked = [pool.health() for pool in self.pools]
        if self._process.backend is not None:
            asked.insert(0, self._process.backend.engine.health())
        found = await asyncio.gather(*asked)
        if not found:
            return Health(ready=False, detail=self._process.detail)
        return next((health for health in found if health.ready), found[0])
