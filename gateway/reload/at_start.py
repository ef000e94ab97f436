"""Which keys count from the next request on, and which from the next start on."""

from typing import Any

from pydantic import BaseModel

from gateway.config.model import Config

RELOADED = frozenset(
    {
        "engines",  # those behind HTTP
        "aliases",
        "canon_policy",
        "canon_rules_version",
        "canon_slot_confirmations",
        "usage",
        "tenants",
        "keys_file",
        "jwt",
        "salt_secret",
        "max_body_mib",
        "clients",
        "limits",
        "queue",
        "routing",
    }
)
AT_START = frozenset(
    {"server", "ledger", "capture", "otlp_endpoint", "redis", "memory", "directory", "admin"}
)


def waiting_keys(started: Config, wanted: Config) -> tuple[str, ...]:
    """Paths of keys whose new values have no effect before the process is started again, sorted."""
    found = {
        path for key in AT_START for path in _differences(key, getattr(started, key), getattr(wanted, key))
    }
    mine, other = started.local, wanted.local
    if mine is None or other is None or type(mine) is not type(other):
        name = next((each.name for each in (mine, other) if each is not None), None)
        found |= set() if mine is other or name is None else {f"engines[{name}]"}
    else:
        found |= set(_differences(f"engines[{mine.name}]", mine, other))
    return tuple(sorted(found))


def _differences(path: str, one: Any, other: Any) -> list[str]:
    if one == other:
        return []
    if isinstance(one, BaseModel) and type(one) is type(other):
        fields = type(one).model_fields
        return [
            found
            for name in fields
            for found in _differences(f"{path}.{name}", getattr(one, name), getattr(other, name))
        ]
    return [path]
