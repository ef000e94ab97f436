"""`admin:` in the configuration file."""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from gateway.admin.options import AdminOptions
from gateway.config.base import ConfigModel
from gateway.config.secret_ref import SecretRef


class AdminConfig(ConfigModel):
    """Where operators ask, and the key they need there. Read at the start alone."""

    host: Annotated[str, Field(min_length=1, max_length=255)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8001  # 0 takes a free one
    key: SecretRef
    metrics: Literal["both", "here"] = "here"  # both: /metrics is served on the port of requests, too

    def options(self, environ: Mapping[str, str]) -> AdminOptions:
        """As the server takes it; raises ConfigError where the key cannot be used."""
        key = self.key.strong("admin.key", environ)
        return AdminOptions(self.host, self.port, hashlib.sha256(key).digest())
