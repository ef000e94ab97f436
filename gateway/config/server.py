"""`server:` in the configuration file."""

from typing import Annotated

from pydantic import Field

from gateway.config.base import ConfigModel
from gateway.process.server import Ending


class ServerConfig(ConfigModel):
    """Where it listens and how it ends; options of the command line count instead. Read at the start alone."""

    host: Annotated[str, Field(min_length=1, max_length=255)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000  # 0 takes a free one
    workers: Annotated[int, Field(ge=1, le=256)] = 1  # processes that serve
    allow_no_keys: bool = False  # beyond this machine, although nobody needs a key
    drain_delay_s: Annotated[float, Field(ge=0, le=3600)] = 0.0  # not ready, and still taking requests
    grace_s: Annotated[float, Field(ge=0, le=86400)] = 30.0  # then running requests may go on for so long

    def ending(self, drain_delay_s: float | None = None, grace_s: float | None = None) -> Ending:
        """As the server takes it; what is given counts instead."""
        return Ending(
            self.drain_delay_s if drain_delay_s is None else drain_delay_s,
            self.grace_s if grace_s is None else grace_s,
        )
