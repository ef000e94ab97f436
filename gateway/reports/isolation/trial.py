"""One trial: a prefix that one tenant has warmed, asked for by both, and a fresh one of each beside it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from engine_adapters.base import ReuseReport, Tier
from gateway.reports.isolation.signed_rank import p_value, shift
from gateway.reports.isolation.tenant import Answer


@dataclass(frozen=True, slots=True)
class Trial:
    """Four answers to prompts of one length, in two pairs. A coin says which of a pair came first.

    So without a leak the two of a pair could change places, and differences lean neither way, whatever the machine
    does meanwhile.
    """

    cold: Answer  # the owner, a fresh prefix
    warm: Answer  # the owner again, the prefix it has warmed
    other: Answer  # the other tenant, the owner's prefix
    other_cold: Answer  # the other tenant, a fresh prefix

    @property
    def own_gain(self) -> float:
        """Logarithm of how many times faster the owner's answer came on its own prefix."""
        return log(self.cold.seconds) - log(self.warm.seconds)

    @property
    def other_gain(self) -> float:
        """The same for the other tenant; without a leak about 0."""
        return log(self.other_cold.seconds) - log(self.other.seconds)

    @property
    def other_more(self) -> float | None:
        """Tokens more that the other tenant reuses of the owner's prefix than of a fresh one; None: not said."""
        if self.other.reused is None or self.other_cold.reused is None:
            return None
        return self.other.reused - self.other_cold.reused

    def tier(self, base: int) -> Tier | None:
        """Where the prefix was when it was asked for; None: the engine does not say, or it was nowhere.

        `base`: tokens of reuse that mean nothing. Where the other tenant hit, it was the first to ask.
        """
        return tier_of(self.other if self.other.unexplained(base) else self.warm, base)


def tier_of(answer: Answer, base: int) -> Tier | None:
    """The tier that most of what was reused came from; None: not said, or nothing was but what means nothing."""
    return main_tier(answer.told.reuse) if answer.unexplained(base) else None


def main_tier(report: ReuseReport) -> Tier | None:
    """The tier that most of what was reused came from."""
    if not report.by_tier:
        return None
    tier = max(report.by_tier, key=lambda each: (report.by_tier or {})[each])
    return tier if report.by_tier[tier] else None


def baseline(trials: Sequence[Trial]) -> int:
    """Tokens that the other tenant reuses of its own, whatever it asks: a template's, for example."""
    return max((each.other_cold.reused or 0 for each in trials), default=0)


@dataclass(frozen=True, slots=True)
class Gain:
    """How much sooner answers came, over all trials."""

    times: float  # as fast: exp of the Hodges-Lehmann shift of the logarithms
    share: float  # of the trials in which it came sooner
    p: float  # how often chance alone would do as well (signed ranks, one-sided)


def gain_of(logs: Sequence[float]) -> Gain:
    """Over logarithms of ratios, one a trial."""
    sooner = sum(each > 0 for each in logs)
    return Gain(exp(shift(logs)), sooner / len(logs) if logs else 0.0, p_value(logs))
