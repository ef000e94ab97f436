"""`memory:` in the configuration file."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from gateway.config.base import ConfigModel
from gateway.config.extras import need
from gateway.config.secret_ref import SecretRef
from gateway.settings import CanonSettings

_DEFAULT = CanonSettings()


class MemoryConfig(ConfigModel):
    """Where it is remembered what conversations were sent, which is prompt text."""

    store: Literal["local", "redis"] = "local"  # redis: gateways share it; it then holds prompts
    ttl_s: Annotated[float, Field(ge=1, le=365 * 86400)] = _DEFAULT.memory_ttl_s  # after the last use
    max_mib: Annotated[float, Field(gt=0, le=1 << 20)] = 64  # of what stands in this process
    secret: SecretRef | None = None  # encrypts what stands in Redis

    def key(self, environ: Mapping[str, str]) -> bytes | None:
        """The secret; None: nothing is encrypted. Raises ConfigError where it cannot be used."""
        if self.secret is None:
            return None
        need("memory.secret", "redis", "cryptography")
        return self.secret.strong("memory.secret", environ)
