"""From one checked configuration to what requests get, with as much of the one before as has not changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.config.build import MadeFrom, authenticator_of, made_from, pool_of, settings_of
from gateway.config.engines import RemoteEngine
from gateway.config.model import Config
from gateway.config.replicas import addresses_of
from gateway.config.secret_ref import secrets_in
from gateway.reload.live import Configured
from gateway.replicas.pool import EnginePool
from gateway.tenants.authenticator import Authenticator


@dataclass(frozen=True, slots=True)
class Part:
    """One engine behind HTTP, with all that it was made from."""

    engine: RemoteEngine
    more: MadeFrom
    secrets: tuple[str, ...] = field(repr=False)
    pool: EnginePool


@dataclass(frozen=True, slots=True)
class Assembly:
    """What came of one configuration."""

    config: Config
    configured: Configured
    parts: Mapping[str, Part]  # by the engine's name
    secrets: Mapping[str, str] = field(repr=False)  # by the key's path

    def fresh(self, before: "Assembly") -> list[EnginePool]:
        """Pools that were not there before."""
        known = set(before.configured.pools)
        return [pool for pool in self.configured.pools if pool not in known]


def assembled(config: Config, environ: Mapping[str, str], before: Assembly | None = None) -> Assembly:
    """Everything that may change while requests run. Engines that are as before stay what they are.

    Raises:
        ConfigError: a secret, a tokenizer or a package is missing; nothing has been started.
    """
    secrets = {path: secret.read(path, environ) for path, secret in secrets_in(config)}
    parts = {
        engine.name: _part(engine, f"engines[{place}]", config, environ, before)
        for place, engine in config.remotes
    }
    pools = tuple(part.pool for part in parts.values())
    tenants = _tenants(config, environ, secrets, before)
    return Assembly(config, Configured(settings_of(config), pools, tenants), parts, secrets)


def _part(
    engine: RemoteEngine, path: str, config: Config, environ: Mapping[str, str], before: Assembly | None
) -> Part:
    more = made_from(engine, config)
    secrets = tuple(secret.read(at, environ) for at, secret in secrets_in(engine, path))
    known = None if before is None else before.parts.get(engine.name)
    if known is None:
        return Part(engine, more, secrets, pool_of(engine, path, environ, more))
    if (_pooled(known.engine), known.more, known.secrets) == (_pooled(engine), more, secrets):
        return Part(engine, more, secrets, known.pool)
    pool = pool_of(
        engine, path, environ, more, known.pool.router if _routes_alike(known, engine, more) else None
    )
    return Part(engine, more, secrets, pool)


def _pooled(engine: RemoteEngine) -> RemoteEngine:
    """Without what is read from the configuration request by request."""
    return engine.model_copy(update={"max_running": None})


def _routes_alike(known: Part, engine: RemoteEngine, more: MadeFrom) -> bool:
    """Whether what its router knows of replicas is still true of those that stay."""
    before = known.engine
    if (before.url, before.cache_tokens, known.more.routing) != (
        engine.url,
        engine.cache_tokens,
        more.routing,
    ):
        return False
    if any(getattr(each, "kv_events", None) is not None for each in (before, engine)):
        return False  # its replicas are followed from their first event on
    old, new = _addresses(before), _addresses(engine)
    return all(new.get(name, url) == url for name, url in old.items())


def _addresses(engine: RemoteEngine) -> dict[str, str]:
    """Of replicas that the file lists, by name."""
    given = engine.replicas
    return {each.name: each.url for each in addresses_of(given)} if isinstance(given, list) else {}


def _tenants(
    config: Config, environ: Mapping[str, str], secrets: Mapping[str, str], before: Assembly | None
) -> Authenticator:
    """What knows keys and tokens may have learned some: it stays where nothing but engines has changed."""
    if before is not None and before.config.model_copy(update={"engines": config.engines}) == config:
        mine, theirs = _without_engines(secrets), _without_engines(before.secrets)
        if mine == theirs:
            return before.configured.tenants
    return authenticator_of(config, environ)


def _without_engines(secrets: Mapping[str, str]) -> dict[str, str]:
    return {path: value for path, value in secrets.items() if not path.startswith("engines[")}
