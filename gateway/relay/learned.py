"""Whether an engine reports what it reuses, by its answers: a hosted API can only be known by them."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from engine_adapters.base import ReuseReport

ENOUGH = 5  # answers without a word, before that is said of the engine

Verdict: TypeAlias = Literal["unknown", "reports", "not_reported"]


@dataclass(slots=True)
class LearnedReuse:
    """Of one replica, since it was found there. Answers that were cut do not count."""

    answers: int = 0  # whole ones to prompts
    reported: int = 0  # of them those that said how many tokens were reused, a contradiction among them

    def take(self, reuse: ReuseReport) -> None:
        """One answer more."""
        self.answers += 1
        self.reported += reuse.status != "not_reported"

    @property
    def verdict(self) -> Verdict:
        """`unknown` until answers say more."""
        if self.reported:
            return "reports"
        return "not_reported" if self.answers >= ENOUGH else "unknown"
