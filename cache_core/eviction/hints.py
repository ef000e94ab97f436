"""What a request may ask for the prefix it leaves behind, and how much of that one scope gets."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RetentionHints:
    """Wishes, each within its scope's share. Seconds count from the release of the lease.

    A request that needs blocks gets them: what is kept goes too when nothing else is left.
    """

    pin_s: float = 0.0  # an agent waits for its tool: keep the prefix this long
    ttl_s: float | None = None  # not used by then, the prefix goes before all others; None: no such time
    priority: Literal[-1, 0, 1] = 0  # -1 goes before all others; 1 goes after them, for a while

    def __post_init__(self) -> None:
        if not 0 <= self.pin_s < float("inf"):
            raise ValueError(f"a pin lasts zero or more seconds, not {self.pin_s}")
        if self.ttl_s is not None and not self.ttl_s >= 0:
            raise ValueError(f"a time to live is zero or more seconds, not {self.ttl_s}")
        if self.priority not in (-1, 0, 1):
            raise ValueError(f"a priority is -1, 0 or 1, not {self.priority}")


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """How much may be kept. Shares are of the pool's blocks; a kept prefix counts from its first block on.

    Prefixes with a part in common count it each, so the shares are upper bounds of what is really kept.
    """

    scope_share: float = 0.25  # of one scope; one that holds more than this, kept or not, makes room first
    total_share: float = 0.5  # of all scopes together
    scope_keeps: int = 64  # kept prefixes of one scope
    longest_pin_s: float = 600.0  # longer pins end then
    priority_s: float = 300.0  # how long a priority of 1 lasts

    def __post_init__(self) -> None:
        if not 0 <= self.scope_share <= 1 or not 0 <= self.total_share <= 1:
            raise ValueError("shares are between 0 and 1")
        if min(self.scope_keeps, self.longest_pin_s, self.priority_s) < 0:
            raise ValueError("limits are not negative")
