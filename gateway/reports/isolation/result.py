"""What an examination found."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from gateway.reports.isolation.trial import Gain

Verdict = Literal["isolated", "leaks", "cannot tell"]
By = Literal["reuse", "times"]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What chance seldom brings, and what more trials said of it."""

    by: By
    p: float  # how often chance would bring it, in the trials that made it suspected
    again_trials: int  # made after that
    again_p: (
        float | None
    )  # the same in these alone, adjusted for all that is looked at (Holm); None: there are none


@dataclass(frozen=True, slots=True)
class Finding:
    """Of one tier. None stands for what was not said."""

    tier: str  # `all` where the engine tells no tiers apart
    verdict: Verdict
    by: tuple[By, ...]  # what the verdict was reached by; of `isolated`, all that was looked at
    why: str
    trials: int
    own_reused: int | None  # tokens: the owner's on its own prefix, the most of any trial
    other_reused: int | None  # the other tenant's on that prefix, the most of any trial
    other_cold_reused: int | None  # the other tenant's on fresh prefixes: what its own prompts share
    own_gain: Gain
    other_gain: Gain
    bound_p: float  # how often a leak that brings half of the owner's gain would look like this
    suspicions: tuple[Suspicion, ...] = ()


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

    @property
    def by(self) -> tuple[By, ...]:
        """What the verdict was reached by, on the tiers that have it."""
        found = {by for each in self.findings if each.verdict == self.verdict for by in each.by}
        return tuple(by for by in get_args(By) if by in found)

    def as_json(self) -> dict[str, Any]:
        """The whole of it, with the verdict."""
        return {**asdict(self), "verdict": self.verdict, "by": self.by}
