"""Whose request it is."""

from collections.abc import Mapping
from typing import Protocol

from gateway.tenants.tenant import DEFAULT, Tenant


class Authenticator(Protocol):
    """Finds the tenant of a request."""

    async def authenticate(self, headers: Mapping[bytes, bytes]) -> Tenant:
        """The tenant that `headers` (names in lower case) prove; raises ApiError 401."""


class Open:
    """Everyone is the one tenant there is."""

    async def authenticate(self, headers: Mapping[bytes, bytes]) -> Tenant:
        """The default tenant, whatever the headers say."""
        return DEFAULT


OPEN = Open()
