"""The admin app: figures, engines, tenants, and forgetting one. Every path needs the admin key."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from engine_adapters.remote.kvgate import SALT_HEADER, TENANT_HEADER
from gateway.admin.options import AdminOptions
from gateway.errors import ApiError, internal, invalid
from gateway.process.front import ALONE, Siblings, SiblingsAwayError
from gateway.relay.remote import Remote
from gateway.reload.live import Live
from gateway.replicas.pool import EnginePool
from gateway.served import Served
from gateway.tenants.behalf import on_behalf
from gateway.tenants.credentials import credential, incorrect
from gateway.tenants.purging import Forgotten, PurgeAsk, Purges, both
from gateway.tenants.tenant import Tenant
from gateway.transport.answer import json_response
from gateway.transport.record import RequestRecord
from gateway.transport.request_context import RequestContext

access = logging.getLogger("kvgate.access")

_LARGEST = 4096  # bytes of a body
_ASKED = frozenset({"tenant", "group", "flush_engines", "salt", "member", "shared"})


@dataclass(frozen=True, slots=True)
class AdminParts:
    """What the app asks of the gateway."""

    served: Served
    live: Live
    scrape: Callable[[Request], Awaitable[Response]]
    purges: Purges
    siblings: Siblings = ALONE


class AdminApp:
    """Answers operators; made on the event loop that requests run on."""

    def __init__(self, options: AdminOptions, parts: AdminParts) -> None:
        self._options = options
        self._parts = parts
        routed = Starlette(
            routes=[
                Route("/metrics", self._checked(parts.scrape), methods=["GET"]),
                Route("/admin/engines", self._checked(self._engines), methods=["GET"]),
                Route("/admin/tenants", self._checked(self._tenants), methods=["GET"]),
                Route("/admin/purge", self._checked(self._purge), methods=["POST"]),
            ],
            exception_handlers={ApiError: _refusal, HTTPException: _http_refusal, Exception: _failure},
        )
        self.app: ASGIApp = RequestContext(routed, _log)

    def _checked(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def checked(request: Request) -> Response:
            if not self._options.opens(credential(request.scope["headers"])):
                raise incorrect()
            return await answer(request)

        return checked

    async def _engines(self, _: Request) -> Response:
        served = self._parts.served
        local = [
            {
                "name": each.name,
                "models": served.local_models(),
                "replicas": [],
                "health": (await each.engine.health()).detail,
            }
            for each in served.local()
        ]
        engines = [
            *local,
            *(
                {
                    "name": pool.name,
                    "models": sorted(pool.models),
                    "replicas": [_replica(pool, each) for each in pool.replicas],
                }
                for pool in served.pools
            ),
        ]
        return json_response({"ready": (await served.health()).ready, "engines": engines})

    async def _tenants(self, _: Request) -> Response:
        return json_response({"tenants": [_shown(each) for each in self._parts.live.now.tenants.tenants()]})

    async def _purge(self, request: Request) -> Response:
        asked = await _body(request)
        tenants = self._parts.live.now.tenants.tenants()
        tenant = next((each for each in tenants if each.name == asked.get("tenant")), None)
        if tenant is None:
            raise ApiError(404, "There is no such tenant.", param="tenant", code="tenant_not_found")
        if "salt" in asked:
            tenant = _member(tenant, asked)
            shared: tuple[str, ...] = ("others of its group",) if asked.get("shared") else ()
        else:
            others = tuple(each.name for each in tenants if each.group == tenant.group and each is not tenant)
            shared = () if asked.get("group") else others
        scopes = () if shared else self._scopes(tenant)
        ask = PurgeAsk(tenant.name, scopes, shared, bool(asked.get("flush_engines")), tenant.salt)
        found = await self._everywhere(ask)
        return json_response(
            {
                "tenant": tenant.name,
                "group": tenant.group,
                "shared_with": list(shared),
                "complete": all(each.complete for each in found.values()),
                "places": {name: asdict(each) for name, each in found.items()},
            }
        )

    def _scopes(self, tenant: Tenant) -> tuple[str, ...]:
        """Of every model there is, and of requests that named none."""
        served = self._parts.served
        models = {"", *(name for pool in served.pools for name in pool.models), *served.local_models()}
        return tuple(sorted({tenant.scope(model) for model in models}))

    async def _everywhere(self, ask: PurgeAsk) -> Mapping[str, Forgotten]:
        parts = self._parts
        found = dict(await parts.purges.here(ask))
        try:
            others = await parts.siblings.ask("purge", ask.tenant, list(ask.scopes), ask.flush_engines)
        except SiblingsAwayError as error:
            others = []
            found["other workers"] = Forgotten(None, f"they cannot be reached: {error}", complete=False)
        for answer in others:
            for name, (count, detail, complete) in answer.items():
                one = Forgotten(count, detail, complete=complete)
                found[name] = both(found[name], one) if name in found else one
        return found


def _log(record: RequestRecord) -> None:
    """Who looks after a gateway leaves a line, but for a scrape, which comes all the time."""
    if record.path != "/metrics" or record.status != 200:
        access.info("admin request", extra={"fields": record.fields()})


# What was found out of an engine; null is not known.
_ABLE = (
    "version", "reports_reuse", "missing", "block_size", "context_length", "tiers", "takes_salt", "takes_token_ids",
    "as_ids", "kv_events",
)  # fmt: skip


def _replica(pool: EnginePool, remote: Remote) -> dict[str, Any]:
    able = None if remote.able is None else {name: getattr(remote.able, name) for name in _ABLE}
    shown = {
        "replica": remote.replica,
        "ready": remote.ready,
        "detail": remote.detail,
        "able": able,
        "reuse_in_answers": {**asdict(remote.learned), "verdict": remote.learned.verdict},
    }
    follower = None if pool.events is None else pool.events.follower(remote.replica)
    return shown if follower is None else {**shown, "kv_events": asdict(follower.state)}


def _member(gateway: Tenant, asked: dict[str, Any]) -> Tenant:
    """One of the tenants of another gateway; raises ApiError 400."""
    if not gateway.gateway:
        raise invalid(
            "This tenant is no gateway, whose tenants could be told by a salt.", "salt", "invalid_value"
        )
    name = asked.get("member")
    salt = str(asked["salt"]).encode()
    said = [(TENANT_HEADER.encode(), str(name).encode())] if name else []
    return on_behalf(gateway, [(SALT_HEADER.encode(), salt), *said])


def _shown(tenant: Tenant) -> dict[str, Any]:
    """Nothing that opens or reads anything."""
    return {
        "name": tenant.name,
        "group": tenant.group,
        "salted": tenant.salt is not None,
        "models": None if tenant.models is None else list(tenant.models),
        "canon_policy": list(tenant.canon),
        "may_bypass": tenant.may_bypass,
        "gateway": tenant.gateway,
        "limits": None if tenant.limits is None else asdict(tenant.limits),
    }


async def _body(request: Request) -> dict[str, Any]:
    raw = b""
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > _LARGEST:
            raise ApiError(413, f"The body is larger than {_LARGEST} bytes.", code="request_too_large")
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise invalid("The body is not valid JSON.", code="invalid_json") from None
    if not isinstance(body, dict):
        raise invalid("The body must be a JSON object.", code="invalid_type")
    unknown = sorted(body.keys() - _ASKED)
    if unknown:
        raise invalid("There is no such field.", unknown[0][:100], "unknown_parameter")
    return body


async def _refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return json_response(error.body(), status=error.status, headers=error.headers)


async def _http_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = "unknown_url" if error.status_code == 404 else "method_not_allowed"
    message = "There are /metrics, /admin/engines, /admin/tenants and POST /admin/purge."
    return await _refusal(request, ApiError(error.status_code, message, code=code, headers=error.headers))


async def _failure(request: Request, _: Exception) -> Response:
    return await _refusal(request, internal())
