"""How requests wait for an engine that runs as many as it may."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """How many requests may wait for one engine, and for how long."""

    max_waiting: int = 1024
    max_waiting_per_tenant: int = 256
    max_wait_s: float = 30.0
