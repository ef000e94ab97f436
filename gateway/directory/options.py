"""What an operator may set about the directory."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DirectoryOptions:
    """Of all engines."""

    ttl_s: float = 600.0  # of what was not told again
    budget_s: float = 0.005  # that a request waits for it
    owners: int = 8  # of one prefix
