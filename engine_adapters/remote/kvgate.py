"""Another kvgate: what it can, the salt and the tenant that it believes us, all that it knows of reuse."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, get_args

import orjson
from msgspec.structs import replace

from engine_adapters.base import Tier
from engine_adapters.errors import EngineFailureError
from engine_adapters.remote.http_engine import HttpEngine, HttpOptions
from engine_adapters.remote.paths import CHANGED_PATHS, SELF_HOSTED_PATHS
from engine_adapters.remote.relay import (
    OtherPurge,
    RelayRequest,
    RemoteCapabilities,
    Rewrite,
    Rewrites,
    Route,
)
from engine_adapters.reuse.profiles import PROFILES, Profile
from engine_adapters.reuse.reading import UsageRead

SALT_HEADER: Final = "x-kvgate-salt"
TENANT_HEADER: Final = "x-kvgate-tenant"
USAGE_HEADER: Final = "x-kvgate-usage"

OWNER: Final = "kvgate"  # what it writes into `owned_by` of GET /v1/models
FACTS: Final = "kvgate"  # the key of a model's card, for the key of another gateway
_TIERS: tuple[Tier, ...] = get_args(Tier)
_PURGE_S = 120.0  # disks are looked through
UNBELIEVED = (
    "gateway: true at the tenant whose key this is: without it the other kvgate takes no salt from here"
)


@dataclass(frozen=True, slots=True)
class AdminDoor:
    """Where another kvgate's operators ask it."""

    url: str  # without a path
    key: str = field(repr=False)


class KvgateEngine(HttpEngine):
    """Relays to another kvgate. Salt and tenant go in headers, which it takes only from a key that it knows as a
    gateway's, and refuses from any other; a client's own salt stays in the body, where the other one sees to it.

    What it reused is asked for in full with every request; what the client did not ask for does not reach it.
    """

    paths: ClassVar[Mapping[Route, str]] = {**SELF_HOSTED_PATHS, **CHANGED_PATHS}
    salted: ClassVar[Collection[Route]] = tuple(paths)

    def __init__(
        self,
        name: str,
        base_url: str,
        models: Sequence[str] = (),
        options: HttpOptions | None = None,
        admin: AdminDoor | None = None,
    ) -> None:
        super().__init__(name, base_url, PROFILES["kvgate"], models, options)
        self._admin = admin
        self._known_as: str | None = None  # this gateway's name among the other one's tenants

    @property
    def forgets(self) -> bool:  # type: ignore[override]
        """Where its admin app can be asked."""
        return self._admin is not None

    async def detect(self) -> RemoteCapabilities:
        listed = (await self.ask("GET", f"{self._root}/models")).get("data")
        cards = [card for card in listed if isinstance(card, dict)] if isinstance(listed, list) else []
        models = self.models or tuple(card["id"] for card in cards if isinstance(card.get("id"), str))
        wanted = [card for card in cards if card.get("id") in models]
        told = [card[FACTS] for card in wanted if isinstance(card.get(FACTS), dict)]
        self._known_as = next((name for each in told if isinstance(name := each.get("tenant"), str)), None)
        # A model that has no card, or one of something that is no kvgate, is not kept apart by anything.
        believed = (
            bool(models) and len(told) == len(models) and all(each.get("salt") is True for each in told)
        )
        return RemoteCapabilities(
            models=models,
            reports_reuse=_all(told, "reports_reuse"),
            missing=() if believed else (UNBELIEVED,),
            block_size=_same(told, "block_size"),
            context_length=_shortest(wanted),
            tiers=tuple(tier for tier in _TIERS if any(tier in each.get("tiers", ()) for each in told)),
            takes_salt=believed,
            takes_token_ids=True,
            kv_events=False,
        )

    def upstream_body(self, request: RelayRequest) -> bytes:
        return self.patched_body(request, self.upstream_values(request))

    def upstream_headers(self, request: RelayRequest) -> Mapping[str, str]:
        headers = {**request.headers, USAGE_HEADER: "full"}
        if request.salt is not None:
            headers[SALT_HEADER] = request.salt
            if request.tenant:
                headers[TENANT_HEADER] = request.tenant
        return headers

    def rewrites(self, request: RelayRequest, given: Rewrites) -> Rewrites:
        given = super().rewrites(request, given)
        return replace(given, usage=_without_facts(given.usage))

    def profile_of(self, route: Route) -> Profile:
        return PROFILES["kvgate"]

    async def forget(self, tenant: str, salt: str, *, shared: bool) -> OtherPurge:
        if self._admin is None:
            return await super().forget(tenant, salt, shared=shared)
        if self._known_as is None:
            await self.detect()
        body = {"tenant": self._known_as, "salt": salt, "member": tenant, "shared": shared}
        headers = {"authorization": f"Bearer {self._admin.key}"}
        url = f"{self._admin.url}/admin/purge"
        answer = await self.answer_of(
            "POST", url, content=orjson.dumps(body), headers=headers, timeout=_PURGE_S
        )
        if answer.status_code >= 400:
            raise EngineFailureError(f"The engine {self.name} answered {url} with {answer.status_code}.")
        told = orjson.loads(answer.content)
        places = told["places"]
        kept = [f"{name} {each['detail']}" for name, each in places.items() if not each["complete"]]
        return OtherPurge(places["kv"]["count"], told["complete"], "; ".join(kept))

    @property
    def health_url(self) -> str:
        return f"{self.server}/ready"


def _without_facts(then: Rewrite | None) -> Rewrite:
    """`then`, over usage without what was asked for upstream only."""

    def rewrite(payload: dict[str, Any], read: UsageRead) -> Mapping[str, Any] | None:
        payload = _stripped(payload)
        return payload if then is None else then(payload, read)

    return rewrite


def _stripped(payload: dict[str, Any]) -> dict[str, Any]:
    for place in ("response", "message"):
        inner = payload.get(place)
        if isinstance(inner, dict) and "usage" in inner:
            found = _stripped(inner)
            return payload if found is inner else {**payload, place: found}
    usage = payload.get("usage")
    if not isinstance(usage, dict) or FACTS not in usage:
        return payload
    return {**payload, "usage": {name: value for name, value in usage.items() if name != FACTS}}


def _all(told: Sequence[Mapping[str, Any]], name: str) -> bool | None:
    values = {each.get(name) for each in told}
    if False in values:
        return False
    return True if values == {True} else None


def _same(told: Sequence[Mapping[str, Any]], name: str) -> int | None:
    values = {each.get(name) for each in told}
    value = values.pop() if len(values) == 1 else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _shortest(cards: Sequence[Mapping[str, Any]]) -> int | None:
    lengths = [card.get("max_model_len") for card in cards]
    return min((length for length in lengths if isinstance(length, int)), default=None)
