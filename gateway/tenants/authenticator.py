"""Whose request it is."""

from collections.abc import Iterable
from typing import Protocol, TypeAlias

from gateway.tenants.tenant import DEFAULT, Tenant

# As they came, names in lower case; a name may stand there more than once.
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]


class Authenticator(Protocol):
    """Finds the tenant of a request."""

    async def authenticate(self, headers: Headers) -> Tenant:
        """The tenant that `headers` prove; raises ApiError 401, or 503 where that cannot be told now."""

    def tenants(self) -> tuple[Tenant, ...]:
        """All that there are."""


class Open:
    """Everyone is the one tenant there is."""

    async def authenticate(self, headers: Headers) -> Tenant:
        """The default tenant, whatever the headers say."""
        return DEFAULT

    def tenants(self) -> tuple[Tenant, ...]:
        """The default tenant."""
        return (DEFAULT,)


OPEN = Open()
