"""`clients:` in the configuration file."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from gateway.config.base import ConfigModel
from gateway.settings import MIB, GatewaySettings

_DEFAULT = GatewaySettings()
Seconds = Annotated[float, Field(gt=0, le=86400)]


class ClientsConfig(ConfigModel):
    """What all clients together may hold, and how slow one may be."""

    max_in_flight: Annotated[int, Field(ge=1, le=1 << 20)] = _DEFAULT.max_in_flight
    max_buffered_mib: Annotated[float, Field(gt=0, le=1 << 20)] = _DEFAULT.max_buffered_bytes / MIB
    body_timeout_s: Seconds = _DEFAULT.body_timeout_s
    write_stall_s: Seconds = _DEFAULT.write_stall_s
    keepalive_s: Seconds = _DEFAULT.keepalive_s

    def over(self, settings: GatewaySettings) -> GatewaySettings:
        """`settings` with what stands here."""
        return replace(
            settings,
            max_in_flight=self.max_in_flight,
            max_buffered_bytes=int(self.max_buffered_mib * MIB),
            body_timeout_s=self.body_timeout_s,
            write_stall_s=self.write_stall_s,
            keepalive_s=self.keepalive_s,
        )
