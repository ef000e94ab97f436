"""What trials say. No I/O, so every leak can be written down."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gateway.reports.isolation.signed_rank import p_value, shift
from gateway.reports.isolation.trial import BY_CHANCE, Gain, Trial, gain_of

Verdict = Literal["isolated", "leaks", "cannot tell"]

LEAK_P = 0.001  # a gain of the other tenant that chance brings more rarely is a leak
SURE_P = (
    0.01  # what has to be seen before "isolated" is said: the owner's gain, and that the other's is far less
)
FEWEST = 10  # trials whose signs alone could come below LEAK_P


@dataclass(frozen=True, slots=True)
class Finding:
    """Of one tier. None stands for what was not said."""

    tier: str  # `all` where the engine tells no tiers apart
    verdict: Verdict
    why: str
    trials: int
    own_reused: int | None  # tokens: the owner's on its own prefix, the most of any trial
    other_reused: int | None  # the other tenant's on that prefix, the most of any trial
    other_cold_reused: int | None  # the other tenant's on fresh prefixes: what its own prompts share
    own_gain: Gain
    other_gain: Gain
    bound_p: float  # how often a leak that brings half of the owner's gain would look like this


def finding_of(tier: str, trials: Sequence[Trial]) -> Finding:
    """What one tier's trials say together."""
    own = gain_of([each.own_gain for each in trials])
    other = gain_of([each.other_gain for each in trials])
    half = shift([each.own_gain for each in trials]) / 2
    bound = p_value([half - each.other_gain for each in trials])
    reused = _most([each.other.reused for each in trials])
    base = baseline(trials)
    warm = _most([each.warm.reused for each in trials])
    verdict, why = _judged(len(trials), reused, base, own, other, bound)
    return Finding(tier, verdict, why, len(trials), warm, reused, base, own, other, bound)


def baseline(trials: Sequence[Trial]) -> int | None:
    """Tokens that the other tenant reuses of its own, whatever it asks: a template's, for example."""
    return _most([each.other_cold.reused for each in trials])


def _judged(
    trials: int, reused: int | None, base: int | None, own: Gain, other: Gain, bound: float
) -> tuple[Verdict, str]:
    if reused is not None and reused > (base or 0) + BY_CHANCE:
        return "leaks", f"The other tenant is said to reuse {reused:,} tokens of a prefix that it never sent."
    if other.p < LEAK_P:
        said = "although none are reported" if reused is not None else "and what it reuses is not reported"
        return "leaks", f"The other tenant's answers come {other.times:.2f} times as fast, {said}."
    if trials < FEWEST:
        return "cannot tell", f"{trials} trials are too few; {FEWEST} would do."
    if own.p >= SURE_P:
        return "cannot tell", "Not even the owner's own hits are seen in time: take longer prompts (--words)."
    if bound >= SURE_P:
        return (
            "cannot tell",
            "Times vary so much that half of the owner's gain could hide in them: more --trials.",
        )
    return "isolated", "No reuse, and no gain in time where the owner's own is seen."


def _most(counts: Sequence[int | None]) -> int | None:
    return max((each for each in counts if each is not None), default=None)


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a tenant of the owner's group got of its prefixes, where one was given."""

    reused: int | None  # tokens; the most of any
    shares: bool | None  # None: not said


@dataclass(frozen=True, slots=True)
class Isolation:
    """The whole examination."""

    url: str
    model: str
    findings: tuple[Finding, ...]
    not_reached: str  # which tiers were not, and why; empty: nothing lies below what was
    missing: tuple[str, ...]  # tiers that were asked for and not reached
    mate: Sharing | None
    requests: int
    prompt_tokens: int

    @property
    def verdict(self) -> Verdict:
        """The worst of all tiers; not `isolated` while one that was asked for was not reached."""
        found = {each.verdict for each in self.findings}
        if "leaks" in found:
            return "leaks"
        return "cannot tell" if "cannot tell" in found or not found or self.missing else "isolated"

    def as_json(self) -> dict[str, Any]:
        """The whole of it, with the verdict."""
        return {**asdict(self), "verdict": self.verdict}
