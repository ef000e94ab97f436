"""`directory:` in the configuration file: what several gateways tell each other of replicas' caches."""

from typing import Annotated

from pydantic import Field

from gateway.config.base import ConfigModel
from gateway.directory.options import DirectoryOptions

_DEFAULT = DirectoryOptions()


class DirectoryConfig(ConfigModel):
    """It stands in the server of `redis:`."""

    ttl_s: Annotated[float, Field(ge=1, le=86400)] = _DEFAULT.ttl_s
    budget_ms: Annotated[float, Field(gt=0, le=1000)] = _DEFAULT.budget_s * 1000
    owners: Annotated[int, Field(ge=1, le=64)] = _DEFAULT.owners

    def options(self) -> DirectoryOptions:
        """The same."""
        return DirectoryOptions(self.ttl_s, self.budget_ms / 1000, self.owners)
