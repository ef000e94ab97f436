"""The examination: trials on prefixes just warmed, then on such that newer ones have pushed further down.

What leans towards a leak on any of them is looked at again, with twice the trials.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from string import ascii_lowercase
from typing import get_args

from engine_adapters.base import Tier
from gateway.reports.doctor.prober import Prober
from gateway.reports.doctor.prompts import ProbePrompts, text_of
from gateway.reports.isolation.judging import FEWEST, FEWEST_AGAIN, Trials, findings_of, suspicions_of
from gateway.reports.isolation.result import Finding, Isolation, Sharing
from gateway.reports.isolation.tenant import Answer, Tenant
from gateway.reports.isolation.trial import Trial, baseline, tier_of

_WARM_UPS = 2  # requests of each tenant before anything counts
_MATES = 3  # trials in which a tenant of the same group asks, too
_LOOKS = 10  # at most, on the way down in one round
_ROUNDS = 5  # at most, of prefixes that are pushed down
_IN_VAIN = 2  # of these, one after the other, in which nothing comes back from further down
_ROUNDS_AGAIN = 3  # the same, to look again at what is suspected
_CODE = 6  # letters that each prompt begins with, so that no two have more in common than a few of them
_DOWN: tuple[Tier, ...] = get_args(Tier)  # the warmest first


@dataclass(frozen=True, slots=True)
class Scale:
    """How much it may cost. Every request asks for one token."""

    words: int = 1500  # of every prompt; about as many tokens
    trials: int = (
        24  # on each tier; as many again where they do not decide, twice as many where they make suspicious
    )
    fill_tokens: int = 200_000  # about, at most, to push prefixes down to lower tiers; the same to look again
    tiers: tuple[Tier, ...] = ()  # that have to be reached; empty: those that can be

    @property
    def requests(self) -> int:
        """At most, as long as nothing is suspected; one of each side may be refused for how it names its limit."""
        return (
            3 * (_WARM_UPS + 2)
            + 2 * 5 * self.trials
            + _MATES
            + _ROUNDS * self._round(self.trials)
            + self._fill
        )

    @property
    def requests_again(self) -> int:
        """At most, to look again at what is suspected."""
        return 5 * 2 * self.trials + _ROUNDS_AGAIN * self._round(2 * self.trials) + self._fill

    @property
    def _fill(self) -> int:
        return -(-self.fill_tokens // self.words)

    def _round(self, trials: int) -> int:
        return 6 * trials + 3 * _LOOKS


@dataclass(frozen=True, slots=True)
class Sides:
    """Who asks. Salts are for engines that are asked themselves, without a gateway that has keys."""

    owner: Prober
    other: Prober
    mate: Prober | None = None  # of the owner's group
    owner_salt: str | None = None
    other_salt: str | None = None

    @property
    def probers(self) -> tuple[Prober, ...]:
        return tuple(each for each in (self.owner, self.other, self.mate) if each is not None)


class Examination:
    """Of one model at one address. Use once."""

    def __init__(
        self, url: str, sides: Sides, scale: Scale, *, seed: int | str, say: Callable[[str], None]
    ) -> None:
        self._url = url
        self._sides = sides
        self._owner = Tenant(sides.owner, sides.owner_salt)
        self._other = Tenant(sides.other, sides.other_salt, "The second tenant")
        self._mate = (
            None if sides.mate is None else Tenant(sides.mate, None, "The tenant of the owner's group")
        )
        self._scale = scale
        self._prompts = ProbePrompts(seed)
        self._random = Random(f"order {seed}")  # noqa: S311 -- an order, no secret
        self._say = say
        self._first: list[Trial] = []
        self._again: list[Trial] = []  # made after the first ones were looked at
        self._mates: list[Answer] = []
        self._top = ""  # the tier on which prefixes are that were just warmed
        self._filled = 0  # tokens
        self._may_fill = scale.fill_tokens

    async def examine(self) -> Isolation:
        """Ask, and judge; raises DoctorError where a tenant gets no answers."""
        scale = self._scale
        self._say(
            f"at most {scale.requests:,} requests of one token each, {scale.words:,} words a prompt: "
            f"{scale.requests * scale.words:,} words, and what templates add; where something is suspected, "
            f"{scale.requests_again:,} requests more"
        )
        await self._warm_up()
        await self._just_warmed()
        tops = Counter(trial.tier(self._base()) or "all" for trial in self._first)
        self._top = tops.most_common(1)[0][0]
        below = await self._further_down()
        await self._look_again()
        findings = self._findings()
        reached = {each.tier for each in findings}
        return Isolation(
            self._url,
            self._sides.owner.model,
            tuple(findings),
            below,
            tuple(tier for tier in scale.tiers if tier not in reached),
            self._sharing(),
            sum(each.requests for each in self._sides.probers),
            sum(each.prompt_tokens for each in self._sides.probers),
        )

    async def _warm_up(self) -> None:
        for tenant in (self._owner, self._other, self._mate):
            if tenant is not None:
                await tenant.get_ready()
                for _ in range(_WARM_UPS):
                    await tenant.ask(self._fresh())

    async def _just_warmed(self) -> None:
        for look in range(2):
            self._first += await self._trials_just_warmed(self._scale.trials)
            findings = self._findings()
            if all(each.verdict != "cannot tell" or each.suspicions for each in findings):
                return
            if not look:
                self._say("that does not decide: as many again")

    async def _trials_just_warmed(self, trials: int) -> list[Trial]:
        made = []
        for number in range(trials):
            self._tell(f"prefixes just warmed, trial {number + 1}", number, trials)
            text = self._fresh()
            await self._owner.ask(text)
            made.append(await self._trial(text, others_first=self._coin()))
        return made

    async def _trial(self, text: str, *, others_first: bool) -> Trial:
        """`others_first`: as it has to be where what the owner asks for comes up from where it was."""
        if others_first:
            other, other_cold = await self._pair(self._other, text)
        warm, cold = await self._pair(self._owner, text)
        if not others_first:
            other, other_cold = await self._pair(self._other, text)
        if self._mate is not None and len(self._mates) < _MATES:
            self._mates.append(await self._mate.ask(text))
        return Trial(cold, warm, other, other_cold)

    async def _pair(self, tenant: Tenant, text: str) -> tuple[Answer, Answer]:
        """To the text and to a fresh one, right behind each other; which of them comes first is chance."""
        fresh = self._fresh()
        if self._coin():
            answer = await tenant.ask(text)
            return answer, await tenant.ask(fresh)
        cold = await tenant.ask(fresh)
        return await tenant.ask(text), cold

    async def _further_down(self) -> str:
        """Trials on lower tiers, as far down as it goes; why it goes no further."""
        if self._first[-1].warm.told.reuse.by_tier is None:
            return "lower tiers, if there are any: what is reused is not told by tier here"
        in_vain = 0
        for _ in range(_ROUNDS):
            done = self._done()
            if self._scale.tiers and not set(self._scale.tiers) - done:
                return ""
            found = await self._trials_below(done, self._scale.trials)
            if found is None:
                break
            self._first += found
            # A busy engine may not have written it down yet, or computes it anew for once.
            in_vain = 0 if any(each.tier(self._base()) not in done for each in found) else in_vain + 1
            if in_vain == _IN_VAIN:
                return "lower tiers, if there are any: not even the owner gets anything back from there"
        spent = f"{self._filled:,} tokens of other prompts"
        return f"lower tiers, if there are any: {spent} pushed too little there (--fill-tokens)"

    async def _trials_below(self, past: set[str], trials: int) -> list[Trial] | None:
        """On prefixes that are on none of the tiers `past` any more; None: what may be spent did not do."""
        kept = [self._fresh() for _ in range(trials)]
        looks = [self._fresh() for _ in range(_LOOKS)]
        await self._keep([*kept, *looks])
        if not await self._pushed_down(looks, past):
            return None
        made = []
        for number, text in enumerate(kept):
            trial = await self._trial(text, others_first=True)
            tier = trial.tier(self._base())
            self._tell(f"prefixes pushed down, trial {number + 1}: {tier or 'gone'}", number, trials)
            if tier is not None:
                made.append(trial)
        return made

    async def _keep(self, texts: Sequence[str]) -> None:
        """The owner's, in random order: looks lie among the kept, so that they go where those go.

        Each is asked for twice: what came once only, some caches drop before it gets any further down.
        """
        self._say(f"{len(texts)} prefixes, to be pushed further down")
        for text in self._random.sample(texts, len(texts)):
            await self._owner.ask(text)
            await self._owner.ask(text)

    async def _pushed_down(self, looks: Sequence[str], past: set[str]) -> bool:
        """Whether prefixes are past those tiers; False: what may be spent is spent."""
        step = 1
        for text in looks:
            tier = tier_of(await self._owner.ask(text), self._base())
            if tier not in past:
                return True
            if self._filled >= self._may_fill:
                return False
            self._say(f"they are on the {tier}: {step} prompts more")
            await self._fill(step)
            step *= 2
        return False

    def _done(self) -> set[str]:
        """Tiers with trials enough."""
        counts = Counter(trial.tier(self._base()) for trial in self._first)
        return {tier for tier, count in counts.items() if tier is not None and count >= FEWEST}

    async def _fill(self, prompts: int) -> None:
        for _ in range(prompts):
            if self._filled >= self._may_fill:
                return
            told = (await self._owner.ask(self._fresh())).told
            self._filled += told.prompt or self._scale.words

    async def _look_again(self) -> None:
        """At tiers that are suspected: twice the trials, of which none had a part in the suspicion."""
        self._may_fill = self._filled + self._scale.fill_tokens
        trials = 2 * self._scale.trials
        rounds = _ROUNDS_AGAIN
        certain = {each.tier for each in self._findings() if each.verdict == "leaks"}
        for tier, suspicions in suspicions_of(self._tiers()).items():
            if tier in certain:
                continue
            said = " and ".join(f"{each.by} (p {each.p:.3f})" for each in suspicions)
            self._say(f"suspected on {tier} by {said}: {trials} trials more")
            if tier == self._top:
                self._again += await self._trials_just_warmed(trials)
            while tier != self._top and rounds and self._count_again(tier) < FEWEST_AGAIN:
                rounds -= 1
                past: set[str] = {*_DOWN[: _DOWN.index(tier)]} if tier in _DOWN else set()
                found = await self._trials_below(past, trials)
                if found is None:
                    break
                self._again += found

    def _count_again(self, tier: str) -> int:
        tiers = self._tiers()
        return len(tiers[tier].again) if tier in tiers else 0

    def _base(self) -> int:
        return baseline([*self._first, *self._again])

    def _tiers(self) -> dict[str, Trials]:
        base = self._base()
        tiers: dict[str, tuple[list[Trial], list[Trial]]] = {}
        for place, trials in enumerate((self._first, self._again)):
            for trial in trials:
                tiers.setdefault(trial.tier(base) or "all", ([], []))[place].append(trial)
        return {tier: Trials(*both) for tier, both in tiers.items()}

    def _findings(self) -> list[Finding]:
        found = findings_of(self._tiers(), self._base())
        # A few that were further down than most of their round say only what they are sure of.
        return [
            each for each in found if each is found[0] or each.trials >= FEWEST or each.verdict == "leaks"
        ]

    def _sharing(self) -> Sharing | None:
        if self._mate is None:
            return None
        counts = [each.reused for each in self._mates if each.reused is not None]
        shares = any(each.unexplained(self._base()) for each in self._mates)
        return Sharing(max(counts), shares) if counts else Sharing(None, None)

    def _fresh(self) -> str:
        code = "".join(self._random.choices(ascii_lowercase, k=_CODE))
        return f"{code} {text_of(self._prompts.fresh(self._scale.words - 1))}"

    def _coin(self) -> bool:
        return self._random.random() < 0.5

    def _tell(self, line: str, number: int, of: int) -> None:
        if number % 6 == 0 or number == of - 1:
            self._say(line)
