"""The examination: trials on prefixes just warmed, then on such that newer ones have pushed further down."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeAlias

from engine_adapters.base import Tier
from gateway.reports.doctor.prober import Prober, Told
from gateway.reports.doctor.prompts import ProbePrompts, text_of
from gateway.reports.errors import DoctorError
from gateway.reports.isolation.result import FEWEST, Finding, Isolation, Sharing, baseline, finding_of
from gateway.reports.isolation.trial import BY_CHANCE, Trial, main_tier

_WARM_UPS = 2  # requests of each tenant before anything counts
_MATES = 3  # trials in which a tenant of the same group asks, too
_LOOKS = 12  # at most, on the way down to one tier
_LOWER: tuple[Tier, ...] = ("host", "disk", "store")

# Where prefixes came to that were pushed down: a tier, out of every cache, or not far enough.
_Place: TypeAlias = Tier | Literal["nowhere", "no further"]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much it may cost. Every request asks for one token."""

    words: int = 1500  # of every prompt; about as many tokens
    trials: int = 24  # on each tier; as many again where they do not decide
    fill_tokens: int = 200_000  # about, at most, to push prefixes down to lower tiers
    tiers: tuple[Tier, ...] = ()  # that have to be reached; empty: those that can be

    @property
    def requests(self) -> int:
        """At most."""
        down = len(_LOWER) * (4 * self.trials + 2 * _LOOKS)
        return 3 * _WARM_UPS + 2 * 4 * self.trials + _MATES + down + self.fill_tokens // self.words


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
        self._scale = scale
        self._prompts = ProbePrompts(seed)
        self._random = Random(f"order {seed}")  # noqa: S311 -- an order, no secret
        self._say = say
        self._trials: list[Trial] = []
        self._mates: list[Told] = []
        self._filled = 0  # tokens

    async def examine(self) -> Isolation:
        """Ask, and judge; raises DoctorError where a tenant gets no answers."""
        self._say(
            f"at most {self._scale.requests} requests of one token each, {self._scale.words} words a prompt"
        )
        await self._warm_up()
        await self._just_warmed()
        below = await self._further_down()
        findings = self._findings()
        reached = {each.tier for each in findings}
        return Isolation(
            self._url,
            self._sides.owner.model,
            tuple(findings),
            below,
            tuple(tier for tier in self._scale.tiers if tier not in reached),
            self._sharing(),
            sum(each.requests for each in self._sides.probers),
            sum(each.prompt_tokens for each in self._sides.probers),
        )

    async def _warm_up(self) -> None:
        for _ in range(_WARM_UPS):
            await self._owner(self._fresh())
            await self._other(self._fresh())
            if self._sides.mate is not None:
                await self._sides.mate.text(self._fresh(), stream=True)

    async def _just_warmed(self) -> None:
        for look in range(2):
            for number in range(self._scale.trials):
                self._tell(f"prefixes just warmed, trial {look * self._scale.trials + number + 1}", number)
                text = self._fresh()
                cold = await self._owner(text)
                self._trials.append(await self._trial(text, cold, owner_last=False))
            if all(each.verdict != "cannot tell" for each in self._findings()):
                return
            if not look:
                self._say("that does not decide: as many again")

    async def _trial(self, text: str, cold: Told, *, owner_last: bool) -> Trial:
        """`owner_last`: what the owner asks for comes up from where it was, and the others must ask before."""
        order = ["other", "other_cold"] + ([] if owner_last else ["warm"])
        self._random.shuffle(order)
        told: dict[str, Told] = {}
        for who in order + (["warm"] if owner_last else []):
            told[who] = await (
                self._owner(text) if who == "warm" else self._other(text if who == "other" else self._fresh())
            )
        if self._sides.mate is not None and len(self._mates) < _MATES:
            self._mates.append(await self._sides.mate.text(text, stream=True))
        return Trial(cold, told["warm"], told["other"], told["other_cold"])

    async def _further_down(self) -> str:
        """Trials on lower tiers, as far down as it goes; why it goes no further."""
        if self._trials[-1].warm.reuse.by_tier is None:
            return "lower tiers, if there are any: what is reused is not told by tier here"
        done: set[Tier] = {"device"}
        while True:
            if self._scale.tiers and not set(self._scale.tiers) - done:
                return ""
            kept = [self._fresh() for _ in range(self._scale.trials)]
            looks = [self._fresh() for _ in range(_LOOKS)]
            warmed = await self._warmed(kept, looks)
            tier = await self._pushed_below(done, looks)
            if tier == "no further":
                return self._why_no_further()
            if tier == "nowhere":
                return "lower tiers, if there are any: not even the owner gets anything back from there"
            for number, text in enumerate(kept):
                self._tell(f"prefixes on the {tier}, trial {number + 1}", number)
                trial = await self._trial(text, warmed[text], owner_last=True)
                if trial.tier(self._base()) is not None:  # else newer ones have pushed it out meanwhile
                    self._trials.append(trial)
            done.add(tier)

    async def _warmed(self, kept: Sequence[str], looks: Sequence[str]) -> dict[str, Told]:
        """The looks among the kept, so that they go where those go."""
        self._say(f"{len(kept) + len(looks)} prefixes, to be pushed further down")
        texts = [*kept]
        step = max(1, len(kept) // len(looks))
        for number, look in enumerate(looks):
            texts.insert(number * (step + 1), look)
        return {text: await self._owner(text) for text in texts}

    async def _pushed_below(self, done: set[Tier], looks: Sequence[str]) -> _Place:
        """The first tier not in `done` that prefixes come to."""
        step = 1
        for text in looks:
            told = await self._owner(text)
            tier = main_tier(told.reuse)
            if tier is None or (told.reused or 0) <= self._base():
                return "nowhere"
            if tier not in done:
                return tier
            if self._filled >= self._scale.fill_tokens:
                return "no further"
            self._say(f"they are on the {tier}: {step} prompts more")
            await self._fill(step)
            step *= 2
        return "no further"

    async def _fill(self, prompts: int) -> None:
        for _ in range(prompts):
            if self._filled >= self._scale.fill_tokens:
                return
            told = await self._owner(self._fresh())
            self._filled += told.prompt or self._scale.words

    def _why_no_further(self) -> str:
        spent = f"{self._filled:,} tokens of other prompts"
        return f"lower tiers, if there are any: {spent} pushed nothing there (--fill-tokens)"

    def _base(self) -> int:
        return (baseline(self._trials) or 0) + BY_CHANCE

    def _findings(self) -> list[Finding]:
        base = self._base()
        tiers: dict[str, list[Trial]] = {}
        for trial in self._trials:
            tiers.setdefault(trial.tier(base) or "all", []).append(trial)
        found = [finding_of(tier, trials) for tier, trials in tiers.items()]
        # A few that were further down than most of their round say only what they are sure of.
        return [
            each for each in found if each is found[0] or each.trials >= FEWEST or each.verdict == "leaks"
        ]

    def _sharing(self) -> Sharing | None:
        if self._sides.mate is None:
            return None
        counts = [each.reused for each in self._mates if each.reused is not None]
        return Sharing(max(counts), max(counts) > self._base()) if counts else Sharing(None, None)

    def _fresh(self) -> str:
        return text_of(self._prompts.fresh(self._scale.words))

    async def _owner(self, text: str) -> Told:
        return await self._sides.owner.text(text, stream=True, salt=self._sides.owner_salt)

    async def _other(self, text: str) -> Told:
        try:
            return await self._sides.other.text(text, stream=True, salt=self._sides.other_salt)
        except DoctorError as error:
            raise DoctorError(f"The second tenant: {error}") from error

    def _tell(self, line: str, number: int) -> None:
        if number % 6 == 0 or number == self._scale.trials - 1:
            self._say(line)
