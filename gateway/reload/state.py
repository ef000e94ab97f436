"""Which configuration counts, for whoever watches this process."""

from dataclasses import dataclass


@dataclass(slots=True)
class ConfigState:
    """Read from any thread."""

    digest: str  # of file and environment together
    loaded_at: float  # seconds since the epoch
    failed: bool = False  # the newest file cannot be used
    loads: int = 0  # that worked, behind the one at the start
    failures: int = 0
    waiting: tuple[str, ...] = ()  # keys that were changed and have an effect from the next start on
