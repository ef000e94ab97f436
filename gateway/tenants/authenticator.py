"""Whose request it is."""

from typing import Protocol

from gateway.tenants.behalf import Headers, check_none
from gateway.tenants.tenant import DEFAULT, Tenant


class Authenticator(Protocol):
    """Finds the tenant of a request."""

    async def authenticate(self, headers: Headers) -> Tenant:
        """The tenant that `headers` prove; raises ApiError 401, or 503 where that cannot be told now."""

    def tenants(self) -> tuple[Tenant, ...]:
        """All that there are."""


class Open:
    """Everyone is the one tenant there is."""

    async def authenticate(self, headers: Headers) -> Tenant:
        """The default tenant; raises ApiError 400 for a salt that another gateway would have believed."""
        check_none(headers)
        return DEFAULT

    def tenants(self) -> tuple[Tenant, ...]:
        """The default tenant."""
        return (DEFAULT,)


OPEN = Open()
