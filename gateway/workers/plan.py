"""What a process of a server is told at its start."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

Role: TypeAlias = Literal["state", "engine", "worker"]


@dataclass(frozen=True, slots=True)
class Plan:
    """One process's part in its server."""

    role: Role
    index: int  # of a worker, from 0
    folder: str  # of the server's sockets; nobody else may enter it
    host: str
    port: int  # never 0
    workers: int = 1  # that the server has
    again: bool = False  # it takes the place of one that has ended
    server: str = ""  # what tells this server from others

    @property
    def name(self) -> str:
        """As log lines say it."""
        return f"worker {self.index}" if self.role == "worker" else self.role

    @property
    def engine_socket(self) -> Path:
        """Where the engine's process listens."""
        return Path(self.folder) / "engine.sock"

    @property
    def state_socket(self) -> Path:
        """Where the process listens that holds what workers share."""
        return Path(self.folder) / "state.sock"

    def line(self) -> bytes:
        """For the process's control socket."""
        return msgspec.json.encode(self) + b"\n"

    @classmethod
    def read(cls, line: bytes) -> "Plan":
        """Raises ValueError for what `line` has not written."""
        return msgspec.json.decode(line, type=cls)
