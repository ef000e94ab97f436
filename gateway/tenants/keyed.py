"""Tenants that prove themselves by keys or tokens."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from gateway.tenants.behalf import Headers, on_behalf
from gateway.tenants.credentials import credential, incorrect
from gateway.tenants.keys import KeySource, find
from gateway.tenants.tenant import Tenant


class TokenVerifier(Protocol):
    """Tokens that somebody else gives out."""

    async def tenant_of(self, token: bytes) -> str | None:
        """The name of the tenant that a token proves; None: it is not valid. Raises ApiError 503."""


class Keyed:
    """Finds tenants by their keys, and by tokens where `tokens` judges them."""

    def __init__(
        self, tenants: Sequence[Tenant], keys: Sequence[KeySource], tokens: TokenVerifier | None = None
    ) -> None:
        self._tenants = {each.name: each for each in tenants}
        self._admins = {each.name: replace(each, admin=True) for each in tenants}
        self._keys = tuple(keys)
        self._tokens = tokens

    def tenants(self) -> tuple[Tenant, ...]:
        """All that there are."""
        return tuple(self._tenants.values())

    async def authenticate(self, headers: Headers) -> Tenant:
        """The tenant that a request is from; raises ApiError 401, or 503 where that cannot be told now."""
        given = credential(headers)
        key = find(self._keys, given)
        if key is not None:
            tenant = (self._admins if key.admin else self._tenants).get(key.tenant)
        else:
            tenant = await self._by_token(given)
        if tenant is None:
            raise incorrect()
        return on_behalf(tenant, headers)

    async def _by_token(self, given: bytes) -> Tenant | None:
        if self._tokens is None or given.count(b".") != 2:
            return None
        name = await self._tokens.tenant_of(given)
        return None if name is None else self._tenants.get(name)
