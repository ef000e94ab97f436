"""What a request may ask of one engine behind HTTP, and whether the engine keeps its tenant apart."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine_adapters.errors import EngineUnfitError
from engine_adapters.remote.relay import Route
from gateway.errors import ApiError
from gateway.relay.body_urls import Found, found_in, is_plain, may_fetch
from gateway.relay.client_fields import refusal_of, refused_fields
from gateway.relay.remote import Remote
from gateway.surface.routes import path_of
from gateway.tenants.tenant import DEFAULT, Tenant


@dataclass(frozen=True, slots=True)
class Guard:
    """Of one engine, for all its replicas."""

    apart: bool = False  # several groups of tenants use it: what is sent must carry a salt
    url_hosts: frozenset[str] = (
        frozenset()
    )  # names and patterns of hosts that URLs in bodies may have; `*`: all
    client_fields: frozenset[str] = frozenset()  # that clients may send although they are refused elsewhere

    def check(self, body: Mapping[str, Any], tenant: Tenant) -> None:
        """Raises ApiError 400 for what a client may not ask for; takes as long as looking at the body once."""
        tenants = tenant is not DEFAULT
        for name in refused_fields(body, tenants=tenants):
            if name not in self.client_fields:
                raise refusal_of(name)
        for found in () if is_plain(body) else found_in(body):
            self._check_part(found, tenants=tenants)

    def check_replica(self, remote: Remote, route: Route, tenant: Tenant) -> None:
        """Whether this replica keeps the tenant apart.

        Raises:
            ApiError: 404, it has the route, and takes no salt on it.
            EngineUnfitError: it takes none at all, as an older version does.
        """
        if not self.apart or route not in _WITH_PROMPTS:
            return
        if tenant.salt is None or route not in remote.engine.salted:
            message = (
                f"The engine {remote.name} keeps tenants apart by salts, and takes none on {path_of(route)}."
            )
            raise ApiError(404, message, param="model", code="unsupported_route")
        if remote.able is not None and remote.able.takes_salt is False:
            raise EngineUnfitError(
                f"The engine {remote.name} takes no salt, which would keep tenants apart: whoever runs kvgate has to "
                "set it up for that, or give each group of tenants an engine of its own."
            )

    def _check_part(self, found: Found, *, tenants: bool) -> None:
        kind, path, value = found
        if kind == "url":
            if not may_fetch(value, self.url_hosts):
                raise ApiError(400, _NO_FETCH, param=path[:200], code="url_not_allowed")
        elif (kind == "embeds" or tenants) and path.rpartition(".")[2] not in self.client_fields:
            raise refusal_of(path[:200])


OPEN_GUARD = Guard()
_WITH_PROMPTS = frozenset({"chat", "completions", "responses", "embeddings", "messages", "rerank"})
_NO_FETCH = (
    "Engines here fetch nothing that a request names: send the content itself, as a data: URL. "
    "The operator can allow hosts."
)
