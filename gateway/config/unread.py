"""Keys that are right and that nothing reads, since another key says so: told, not refused, for who tries a policy."""

from collections.abc import Iterator

from gateway.config.model import Config
from gateway.config.routing import RoutingConfig

_OF_PREFIX = sorted(set(RoutingConfig.model_fields) - {"policy"})


def unread(config: Config) -> tuple[str, ...]:
    """What to tell an operator, each beginning with the key's path."""
    if config.routing.policy == "prefix":
        return ()
    return tuple(
        f"{path}: nothing reads it under routing.policy: {config.routing.policy}"
        for path in _of_prefixes(config)
    )


def _of_prefixes(config: Config) -> Iterator[str]:
    for place, engine in config.remotes:
        for name in ("kv_events", "cache_tokens"):
            if getattr(engine, name, None) is not None:
                yield f"engines[{place}].{name}"
    if config.directory is not None:
        yield "directory"
    default = RoutingConfig()
    for name in _OF_PREFIX:
        if getattr(config.routing, name) != getattr(default, name):
            yield f"routing.{name}"
