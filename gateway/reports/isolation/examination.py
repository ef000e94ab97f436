"""The examination: trials on prefixes just warmed, then on such that newer ones have pushed further down."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from engine_adapters.base import Tier
from gateway.reports.doctor.prober import Prober, Told
from gateway.reports.doctor.prompts import ProbePrompts, text_of
from gateway.reports.errors import DoctorError
from gateway.reports.isolation.result import FEWEST, Finding, Isolation, Sharing, baseline, finding_of
from gateway.reports.isolation.trial import BY_CHANCE, Trial, main_tier

_WARM_UPS = 2  # requests of each tenant before anything counts
_MATES = 3  # trials in which a tenant of the same group asks, too
_LOOKS = 10  # at most, on the way down in one round
_ROUNDS = 5  # at most, of prefixes that are pushed down


@dataclass(frozen=True, slots=True)
class Scale:
    """How much it may cost. Every request asks for one token."""

    words: int = 1500  # of every prompt; about as many tokens
    trials: int = 24  # on each tier; as many again where they do not decide
    fill_tokens: int = 200_000  # about, at most, to push prefixes down to lower tiers
    tiers: tuple[Tier, ...] = ()  # that have to be reached; empty: those that can be

    @property
    def requests(self) -> int:
        """At most; one of each side may be refused for how it names its limit."""
        down = _ROUNDS * (5 * self.trials + 3 * _LOOKS)
        return 3 * (_WARM_UPS + 1) + 2 * 4 * self.trials + _MATES + down + -(-self.fill_tokens // self.words)


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
            f"at most {self._scale.requests:,} requests of one token each, {self._scale.words:,} words a prompt: "
            f"{self._scale.requests * self._scale.words:,} words, and what templates add"
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
        for _ in range(_ROUNDS):
            if self._scale.tiers and not set(self._scale.tiers) - self._done():
                return ""
            kept = [self._fresh() for _ in range(self._scale.trials)]
            looks = [self._fresh() for _ in range(_LOOKS)]
            warmed = await self._warmed(kept, looks)
            if not await self._pushed_down(looks):
                break
            if not await self._on_lower_tiers(kept, warmed):
                return "lower tiers, if there are any: not even the owner gets anything back from there"
        spent = f"{self._filled:,} tokens of other prompts"
        return f"lower tiers, if there are any: {spent} pushed too little there (--fill-tokens)"

    async def _on_lower_tiers(self, kept: Sequence[str], warmed: Mapping[str, Told]) -> int:
        """How many of the prefixes were on tiers that were not done when they were asked for."""
        there, done = 0, self._done()
        for number, text in enumerate(kept):
            trial = await self._trial(text, warmed[text], owner_last=True)
            tier = trial.tier(self._base())
            self._tell(f"prefixes pushed down, trial {number + 1}: {tier or 'gone'}", number)
            if tier is not None:
                self._trials.append(trial)
                there += tier not in done
        return there

    async def _warmed(self, kept: Sequence[str], looks: Sequence[str]) -> dict[str, Told]:
        """The first answers. Looks lie among the kept, so that they go where those go.

        Each is asked for twice: what came once only, some caches drop before it gets any further down.
        """
        self._say(f"{len(kept) + len(looks)} prefixes, to be pushed further down")
        texts = [*kept, *looks]
        self._random.shuffle(texts)
        first: dict[str, Told] = {}
        for text in texts:
            first[text] = await self._owner(text)
            await self._owner(text)
        return first

    async def _pushed_down(self, looks: Sequence[str]) -> bool:
        """Whether prefixes are no more on a tier that is done; False: what may be spent is spent."""
        step = 1
        for text in looks:
            tier = main_tier((await self._owner(text)).reuse)
            if tier not in self._done():
                return True
            if self._filled >= self._scale.fill_tokens:
                return False
            self._say(f"they are on the {tier}: {step} prompts more")
            await self._fill(step)
            step *= 2
        return False

    def _done(self) -> set[str]:
        """Tiers with trials enough."""
        counts = Counter(trial.tier(self._base()) for trial in self._trials)
        return {tier for tier, count in counts.items() if tier is not None and count >= FEWEST}

    async def _fill(self, prompts: int) -> None:
        for _ in range(prompts):
            if self._filled >= self._scale.fill_tokens:
                return
            told = await self._owner(self._fresh())
            self._filled += told.prompt or self._scale.words

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
