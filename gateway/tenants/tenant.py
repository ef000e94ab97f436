"""A tenant, as a request carries it."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from gateway.limits.tenant_limits import TenantLimits


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant. Tenants of one `group` share prefixes on purpose; no others do."""

    name: str
    group: str  # the tenant's own name where it shares with nobody
    salt: str | None = (
        None  # of the group, derived from a secret; engines that take one get it. None: there is none
    )
    models: tuple[str, ...] | None = None  # names and patterns (`qwen-*`) that may be asked for; None: all
    limits: TenantLimits | None = None  # None: as all who have none of their own
    mark: str = (
        ""  # of the group's salt, in every scope: another secret shares nothing with what was there before
    )
    canon: tuple[str, ...] = ()  # policies of its own, as `canon_policy`; they count before the gateway's
    admin: bool = (
        False  # by the key that came: answers say how they were routed, which tells what others sent
    )
    gateway: bool = False  # whether it is another kvgate, which says for whom it asks
    may_bypass: bool = True  # whether its requests may ask for a weaker canon policy than they get

    def scope(self, model: str) -> str:
        """Within what encodings, memory and KV of `model` may be shared."""
        return f"{self.group}{self.mark}/{model}"

    def may_use(self, model: str) -> bool:
        """Whether `model` may be asked for, and listed."""
        return self.models is None or any(model == each or fnmatchcase(model, each) for each in self.models)


DEFAULT = Tenant("default", "default")  # of all requests where no keys tell tenants apart
UNKNOWN = Tenant("unknown", "unknown", models=())  # of requests that no key proves to be anybody's
