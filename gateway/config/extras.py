"""What a key needs beyond the gateway's own packages, and which extra of kvgate brings it."""

import importlib.util
from collections.abc import Mapping
from types import MappingProxyType

from gateway.config.errors import ConfigError

# By extra, its packages and the module by which each is known to be there. Those of `embedded` stand with that engine.
PACKAGES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "events": {"pyzmq": "zmq"},
        "jwt": {"pyjwt": "jwt", "cryptography": "cryptography"},
        "mooncake": {"mooncake-transfer-engine-non-cuda": "mooncake"},
        "otel": {
            "opentelemetry-sdk": "opentelemetry.sdk",
            "opentelemetry-exporter-otlp-proto-http": "opentelemetry.exporter.otlp.proto.http",
        },
        "postgres": {"psycopg": "psycopg"},
        "redis": {"redis": "redis", "cryptography": "cryptography"},
    }
)


def need(key: str, extra: str, *packages: str) -> None:
    """Raises ConfigError, which names `key` and `extra`, where one of its packages is missing; none said: of all."""
    known = PACKAGES[extra]
    missing = [name for name in packages or known if not _is_there(known[name])]
    if missing:
        raise lacking(key, extra, missing)


def lacking(key: str, extra: str, missing: list[str]) -> ConfigError:
    """In the words that are the same for every key."""
    return ConfigError(f"{key}: it needs {', '.join(missing)}: pip install 'kvgate[{extra}]'")


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # its parent is missing, or it is kept out
        return False
