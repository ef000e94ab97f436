"""One trial: a prefix that nobody has, warmed by one tenant, then asked for by both."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from engine_adapters.base import ReuseReport, Tier
from gateway.reports.doctor.prober import Told
from gateway.reports.isolation.signed_rank import p_value, shift

# Tokens that two prompts of random words may have in common by chance, token by token.
BY_CHANCE = 8


@dataclass(frozen=True, slots=True)
class Trial:
    """Four answers to prompts of one length; times are to the first token."""

    cold: Told  # the owner, a fresh prefix
    warm: Told  # the owner again, the same prefix
    other: Told  # the other tenant, the owner's prefix
    other_cold: Told  # the other tenant, a fresh prefix

    @property
    def own_gain(self) -> float:
        """Logarithm of how many times faster the owner's second answer came."""
        return log(self.cold.seconds) - log(self.warm.seconds)

    @property
    def other_gain(self) -> float:
        """The same for the other tenant; without a leak about 0."""
        return log(self.other_cold.seconds) - log(self.other.seconds)

    def tier(self, beyond: int) -> Tier | None:
        """Where the prefix was when it was asked for; None: the engine does not say.

        `beyond`: tokens of reuse that mean nothing. Where the other tenant hit, it was the first to ask.
        """
        hit = self.other.reused is not None and self.other.reused > beyond
        return main_tier((self.other if hit else self.warm).reuse)


def main_tier(report: ReuseReport) -> Tier | None:
    """The tier that most of what was reused came from."""
    if not report.by_tier:
        return None
    tier = max(report.by_tier, key=lambda each: (report.by_tier or {})[each])
    return tier if report.by_tier[tier] else None


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
