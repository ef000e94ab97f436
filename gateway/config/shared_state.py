"""`redis:` in the configuration file."""

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from gateway.config.base import ConfigModel
from gateway.config.extras import need
from gateway.config.secret_ref import SecretRef
from gateway.shared_state.options import PREFIX, RedisOptions


class RedisConfig(ConfigModel):
    """A Redis or Valkey server that gateways share: limits, the memory of conversations."""

    url: str  # redis://HOST:PORT/DB; rediss:// for TLS; unix:///PATH
    password: SecretRef | None = None
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,64}$")] = PREFIX
    timeout_ms: Annotated[float, Field(ge=1, le=10_000)] = 250  # of one call; then it counts as away

    @field_validator("url")
    @classmethod
    def _usable(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            known = parts.scheme in ("redis", "rediss") and parts.hostname and (parts.port or 6379)
        except ValueError:
            known = None
        if not known and not url.startswith("unix:///"):
            raise ValueError("write redis://HOST:PORT/DB, rediss://HOST:PORT/DB for TLS, or unix:///PATH")
        if parts.password or "password" in parts.query:
            raise ValueError(
                "no password stands in the file: write it as password: {env: NAME} or {file: PATH}"
            )
        return url

    def options(self, environ: Mapping[str, str]) -> RedisOptions:
        """How to reach it; raises ConfigError where the password or the package is missing."""
        need("redis", "redis", "redis")
        password = None if self.password is None else self.password.read("redis.password", environ)
        return RedisOptions(self.url, password, self.prefix, self.timeout_ms / 1000)
