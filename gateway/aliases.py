"""Other names for models."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Alias:
    """What such a name stands for."""

    engine: str  # its name
    model: str  # as clients of that engine say it
