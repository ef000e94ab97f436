"""`limits:` and `queue:` in the configuration file."""

from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from gateway.config.base import ConfigModel
from gateway.limits.queue_settings import QueueSettings
from gateway.limits.tenant_limits import NO_LIMITS, Priority, TenantLimits
from gateway.settings import MIB

Count = Annotated[int, Field(ge=1, le=1 << 50)]


class LimitsConfig(ConfigModel):
    """What a tenant may use; at the top of the file: every tenant that does not say otherwise. null: no limit."""

    inherits: ClassVar[bool] = True

    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    concurrency: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    max_body_mib: Annotated[float, Field(gt=0, le=1 << 20)] | None = None
    max_prompts: Annotated[int, Field(ge=1, le=1 << 20)] | None = NO_LIMITS.max_prompts
    reused_weight: Annotated[float, Field(ge=0, le=1)] = NO_LIMITS.reused_weight
    weight: Annotated[float, Field(ge=0.01, le=1000)] = NO_LIMITS.weight
    longest_pin_s: Annotated[float, Field(ge=0, le=86400)] | None = None
    pinned_tokens: Annotated[int, Field(ge=0, le=1 << 50)] | None = None
    highest_priority: Priority = NO_LIMITS.highest_priority

    def over(self, default: TenantLimits = NO_LIMITS) -> TenantLimits:
        """The limits; what is not written here is as in `default`."""
        said: dict[str, Any] = {name: getattr(self, name) for name in self.model_fields_set}
        if "max_body_mib" in said:
            mib = said.pop("max_body_mib")
            said["max_body_bytes"] = None if mib is None else int(mib * MIB)
        return replace(default, **said)


class QueueConfig(ConfigModel):
    """Where requests wait for an engine with `max_running`."""

    max_waiting: Annotated[int, Field(ge=1, le=1 << 20)] = 1024  # of all tenants together, for one engine
    max_waiting_per_tenant: Annotated[int, Field(ge=1, le=1 << 20)] = 256
    max_wait_s: Annotated[float, Field(gt=0, le=3600)] = 30.0

    def settings(self) -> QueueSettings:
        """As the queue takes them."""
        return QueueSettings(self.max_waiting, self.max_waiting_per_tenant, self.max_wait_s)
