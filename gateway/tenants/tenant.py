"""A tenant, as a request carries it."""

from dataclasses import dataclass

from gateway.limits.tenant_limits import TenantLimits


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant. Tenants of one `group` share prefixes on purpose; no others do."""

    name: str
    group: str  # the tenant's own name where it shares with nobody
    salt: str | None = (
        None  # of the group, derived from a secret; engines that take one get it. None: there is none
    )
    models: frozenset[str] | None = None  # that may be asked for; None: all
    limits: TenantLimits | None = None  # None: as all who have none of their own

    def scope(self, model: str) -> str:
        """Within what encodings, memory and KV of `model` may be shared."""
        return f"{self.group}/{model}"

    def may_use(self, model: str) -> bool:
        """Whether `model` may be asked for, and listed."""
        return self.models is None or model in self.models


DEFAULT = Tenant("default", "default")  # of all requests where no keys tell tenants apart
