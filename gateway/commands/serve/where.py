"""What the command line says of where to listen and how to end."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # they bring a web server with them
    from gateway.config.server import ServerConfig
    from gateway.process.service import ServeOptions
    from gateway.workers.seat import Seat


@dataclass(frozen=True, slots=True)
class Where:
    """None: what the configuration says counts."""

    host: str | None
    port: int | None
    drain_delay_s: float | None
    grace_s: float | None
    json: bool
    allow_no_keys: bool = False
    processes: int | None = None  # that serve
    seat: "Seat | None" = None  # this process is one of them, or beside them

    def workers(self, server: "ServerConfig") -> int:
        """How many processes serve."""
        return server.workers if self.processes is None else self.processes

    def options(self, server: "ServerConfig") -> "ServeOptions":
        """With what the configuration says of the rest."""
        from gateway.process.service import ServeOptions

        return ServeOptions(
            server.host if self.host is None else self.host,
            server.port if self.port is None else self.port,
            server.ending(self.drain_delay_s, self.grace_s),
            json=self.json,
            allow_no_keys=self.allow_no_keys or server.allow_no_keys,
        )
