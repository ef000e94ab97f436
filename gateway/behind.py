"""What another gateway is told of a model here, so that it knows what its tenants get."""

from typing import Any

from gateway.replicas.pool import EnginePool
from gateway.served import Backend, Served
from gateway.tenants.tenant import Tenant


def facts_of(served: Served, model: str, tenant: Tenant) -> dict[str, Any]:
    """Of a model that is served; raises as `Served.find`. `salt`: whether its tenants are kept apart there."""
    return {"tenant": tenant.name, **_facts(served.find(model, tenant))}


def _facts(target: Backend | EnginePool) -> dict[str, Any]:
    if not isinstance(target, EnginePool):
        able = target.capabilities()
        return {
            "salt": True,
            "reports_reuse": able.reports_reuse,
            "block_size": able.block_size,
            "tiers": list(able.tiers),
        }
    remotes = list(target.replicas)
    reports = {each.reports_reuse for each in remotes}
    return {
        "salt": target.guard.apart and bool(remotes) and all(each.takes_salt for each in remotes),
        "reports_reuse": reports.pop() if len(reports) == 1 else None,
        "block_size": target.block_size,
        "tiers": sorted({tier for each in remotes if each.able is not None for tier in each.able.tiers}),
    }
