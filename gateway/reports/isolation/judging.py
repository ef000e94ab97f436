"""What trials say. No I/O, so every leak can be written down.

Reuse that nothing else explains is a leak at once. What only leans, times above all, first makes a tier suspected,
which many honest ones are by chance; a leak is said when trials that were made after that, and were no part of the
suspicion, confirm it. Over all that is examined, that is wrong once in a thousand examinations at most.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log

from gateway.reports.isolation.holm import adjusted
from gateway.reports.isolation.result import By, Finding, Suspicion, Verdict
from gateway.reports.isolation.signed_rank import p_value, shift
from gateway.reports.isolation.trial import Gain, Trial, gain_of

LEAK_P = (
    0.001  # how often tenants that are apart may be called leaking, over all tiers and both kinds together
)
SUSPECT_P = 0.02  # what chance brings more rarely is looked at again
SURE_P = (
    0.01  # what has to be seen before "isolated" is said: the owner's gain, and that the other's is far less
)
FEWEST = 10  # trials that say anything
FEWEST_AGAIN = 14  # trials whose signs alone could confirm, four tiers and two kinds being looked at
LEAK_SHARE = 0.25  # of the owner's gain: less is no reused prefix, however sure it is


@dataclass(frozen=True, slots=True)
class Trials:
    """Of one tier."""

    first: Sequence[Trial]
    again: Sequence[Trial] = ()  # made after the first ones were looked at

    @property
    def all(self) -> list[Trial]:
        return [*self.first, *self.again]


_LEANS: Mapping[By, Callable[[Trial], float | None]] = {
    "reuse": lambda trial: trial.other_more,
    "times": lambda trial: trial.other_gain,
}


def findings_of(tiers: Mapping[str, Trials], base: int) -> list[Finding]:
    """What the trials of all tiers say together. `base`: tokens that the other tenant reuses whatever it asks."""
    suspicions = suspicions_of(tiers)
    return [_finding(tier, trials, base, suspicions.get(tier, ())) for tier, trials in tiers.items()]


def suspicions_of(tiers: Mapping[str, Trials]) -> dict[str, tuple[Suspicion, ...]]:
    """By tier, in what the first trials lean so that it has to be looked at again, and what came of that."""
    looked_at = {tier: trials for tier, trials in tiers.items() if len(trials.first) >= FEWEST}
    first = {(tier, by): _p(by, trials.first) for tier, trials in looked_at.items() for by in _LEANS}
    suspected = [each for each, p in first.items() if p < SUSPECT_P]
    # What was not suspected will not be called a leak, but the bound is for all that might have been.
    again = adjusted(
        dict.fromkeys(first, 1.0) | {(tier, by): _p(by, looked_at[tier].again) for tier, by in suspected}
    )
    found: dict[str, tuple[Suspicion, ...]] = {}
    for tier, by in suspected:
        more = len(looked_at[tier].again)
        one = Suspicion(by, first[tier, by], more, again[tier, by] if more else None)
        found[tier] = (*found.get(tier, ()), one)
    return found


def _p(by: By, trials: Sequence[Trial]) -> float:
    return p_value([lean for each in trials if (lean := _LEANS[by](each)) is not None])


def _finding(tier: str, trials: Trials, base: int, suspicions: Sequence[Suspicion]) -> Finding:
    each = trials.all
    own = [one.own_gain for one in each]
    other = [one.other_gain for one in each]
    bound = p_value([shift(own) / 2 - one for one in other])
    reused = [one.other.reused for one in each if one.other.reused is not None]
    facts = _Facts(
        len(each),
        bool(reused),
        max(one.other.unexplained(base) for one in each),
        gain_of(own),
        gain_of(other),
        bound,
        suspicions,
    )
    verdict, by, why = _judged(facts)
    return Finding(
        tier,
        verdict,
        by,
        why,
        len(each),
        _most([one.warm.reused for one in each]),
        _most(reused),
        _most([one.other_cold.reused for one in each]),
        facts.own,
        facts.other,
        bound,
        tuple(suspicions),
    )


@dataclass(frozen=True, slots=True)
class _Facts:
    trials: int
    reported: bool  # whether the other tenant's reuse is
    unexplained: int  # tokens, the most of any trial
    own: Gain
    other: Gain
    bound: float
    suspicions: Sequence[Suspicion]

    @property
    def small(self) -> bool:
        """Whether the other's gain is too little for a reused prefix."""
        return log(self.other.times) < LEAK_SHARE * log(self.own.times)


def _judged(facts: _Facts) -> tuple[Verdict, tuple[By, ...], str]:
    if facts.unexplained:
        said = (
            f"The other tenant is said to reuse {facts.unexplained:,} tokens of a prefix that it never sent."
        )
        return "leaks", ("reuse",), said
    confirmed = {each.by: each for each in facts.suspicions if _confirmed(each)}
    leaks = tuple(by for by in confirmed if by == "reuse" or not facts.small)
    if leaks:
        return "leaks", leaks, " ".join(_leak(confirmed[by], facts) for by in leaks)
    return _not_leaking(facts, small=bool(confirmed))


def _confirmed(suspicion: Suspicion) -> bool:
    return suspicion.again_p is not None and suspicion.again_p < LEAK_P


def _leak(suspicion: Suspicion, facts: _Facts) -> str:
    sure = f"{suspicion.again_trials} more trials confirm it (p {suspicion.again_p:.0e})"
    if suspicion.by == "reuse":
        return f"The other tenant is said to reuse more of the owner's prefixes than of fresh ones: {sure}."
    said = "although none are reported" if facts.reported else "and what it reuses is not reported"
    return f"The other tenant's answers come {facts.other.times:.2f} times as fast, {said}: {sure}."


def _not_leaking(facts: _Facts, *, small: bool) -> tuple[Verdict, tuple[By, ...], str]:
    if facts.trials < FEWEST:
        return "cannot tell", (), f"{facts.trials} trials are too few; {FEWEST} would do."
    if small:
        said = f"The other tenant's answers come sooner, for sure, yet only {facts.other.times:.2f} times as fast"
        return (
            "cannot tell",
            ("times",),
            f"{said}: that is no reused prefix, but they may share something else.",
        )
    open_ = [each for each in facts.suspicions if each.again_trials < FEWEST_AGAIN]
    if open_:
        said = " and ".join(f"{each.by} (p {each.p:.3f})" for each in open_)
        return "cannot tell", (), f"Suspected by {said}, and not looked at again: more --fill-tokens."
    if facts.own.p >= SURE_P:
        said = "Not even the owner's own hits are seen in time: take longer prompts (--words)."
        return "cannot tell", (), said
    if facts.bound >= SURE_P:
        said = "Times vary so much that half of the owner's gain could hide in them: more --trials."
        return "cannot tell", (), said
    return "isolated", ("reuse", "times") if facts.reported else ("times",), _isolated(facts)


def _isolated(facts: _Facts) -> str:
    reuse = "No reuse, and no" if facts.reported else "No"
    said = f"{reuse} gain in time where the owner's own is seen."
    for each in facts.suspicions:
        more = f"{each.again_trials} more trials do not confirm it"
        said += f" It was suspected by {each.by} (p {each.p:.3f}): {more} (p {each.again_p or 1:.3f})."
    return said


def _most(counts: Sequence[int | None]) -> int | None:
    return max((each for each in counts if each is not None), default=None)
