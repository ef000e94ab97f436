"""How long a call of a tier may take, and how many may take longer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallLimits:
    """For each tier below the host. Seconds after which a call is left alone: it goes on, and nobody waits for it."""

    ask: float = 2.0  # what a tier has
    read: float = 5.0  # one batch of blocks; less where those who wait for it have less time
    write: float = 15.0  # one batch of blocks, synced
    clean: float = 30.0  # without a sign that it goes on
    most_stuck: int = 3  # calls that were left alone and have not returned: with so many the tier is away
    probe_every: float = 5.0  # between two looks whether a tier that is away answers again

    def __post_init__(self) -> None:
        if min(self.ask, self.read, self.write, self.clean, self.probe_every) <= 0 or self.most_stuck < 1:
            raise ValueError(f"limits of calls are more than nothing: {self}")
