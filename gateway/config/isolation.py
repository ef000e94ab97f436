"""Whether tenants are kept apart on every engine that more than one group of them may use."""

from collections.abc import Iterable, Mapping, Sequence

from gateway.config.aliases import AliasConfig
from gateway.config.engines import EmbeddedEngine, EngineConfig, RemoteEngine, SGLangProcessEngine
from gateway.config.tenants import TenantConfig
from gateway.tenants.tenant import Tenant

# Kinds of engines whose cache is divided by a salt, or by the scope of a request.
SALTED = frozenset({"embedded", "kvgate", "sglang_process", "sglang", "vllm"})


def groups_of(
    engine: EmbeddedEngine | SGLangProcessEngine | RemoteEngine,
    tenants: Iterable[TenantConfig],
    aliases: Mapping[str, AliasConfig],
) -> list[str]:
    """Groups whose tenants may use a model of `engine`; all where the file does not say which models it has."""
    names = engine.client_names()
    if names:
        names = [*names, *(name for name, alias in aliases.items() if alias.engine == engine.name)]
    users = [each for each in tenants if not names or _may_use_any(each, names)]
    groups = {each.shares_as for each in users}
    return sorted(groups | {f"tenants of {each.name}" for each in users if each.gateway})


def must_salt(
    engine: RemoteEngine, tenants: Iterable[TenantConfig], aliases: Mapping[str, AliasConfig]
) -> bool:
    """Whether a request may reach `engine` only with a salt."""
    return not engine.shared_cache and len(groups_of(engine, tenants, aliases)) > 1


def check_isolation(
    engines: Sequence[EngineConfig],
    tenants: Sequence[TenantConfig],
    aliases: Mapping[str, AliasConfig],
) -> None:
    """Raises ValueError, which names the engine that would mix tenants."""
    for place, engine in enumerate(engines):
        groups = groups_of(engine, tenants, aliases)
        shared = isinstance(engine, RemoteEngine) and engine.shared_cache
        if engine.kind not in SALTED and len(groups) > 1 and not shared:
            shown = ", ".join(groups[:5]) + (", ..." if len(groups) > 5 else "")
            raise ValueError(
                f"engines[{place}]: {shown} may all use {engine.name}, and {engine.kind} takes no salt that keeps "
                "them apart: give each group an engine of its own (models: of tenants), or say shared_cache: true"
            )


def _may_use_any(tenant: TenantConfig, names: Sequence[str]) -> bool:
    models = None if tenant.models is None else tuple(tenant.models)
    as_asked = Tenant(tenant.name, tenant.shares_as, models=models)
    return any(as_asked.may_use(name) for name in names)
