"""One who asks, and knows what its own prompts may explain of what it reuses."""

from dataclasses import dataclass

from gateway.reports.doctor.prober import Prober, Told
from gateway.reports.errors import DoctorError
from gateway.reports.isolation.own_prompts import OwnPrompts

_WORD = "time"
_AROUND = 128  # tokens that templates put around a prompt, at most, where the engine does not count them


@dataclass(frozen=True, slots=True)
class Answer:
    """What one answer said, and what it may say without a leak."""

    told: Told
    explained: int  # tokens of reuse, at most, that prompts of the same tenant account for

    @property
    def reused(self) -> int | None:
        """Tokens; None: not said."""
        return self.told.reused

    @property
    def seconds(self) -> float:
        """To the first token."""
        return self.told.seconds

    def unexplained(self, base: int) -> int:
        """Tokens of reuse that neither its own prompts nor `base`, what its fresh ones reuse, account for; or 0."""
        reused = self.told.reused
        return 0 if reused is None or reused <= max(base, self.explained) else reused


class Tenant:
    """Asks as one tenant. `name` stands before what it is refused with; `salt` is for engines asked without keys."""

    def __init__(self, prober: Prober, salt: str | None = None, name: str = "") -> None:
        self._prober = prober
        self._salt = salt
        self._name = name
        self._sent = OwnPrompts()
        self._around = _AROUND

    async def get_ready(self) -> None:
        """Find out how many tokens a template puts around a prompt: all that a prompt of one word has but one."""
        told = (await self.ask(_WORD)).told
        if told.prompt is not None:
            self._around = max(told.prompt - 1, 0)

    async def ask(self, text: str) -> Answer:
        """One stream of one token.

        A text has at most as many tokens as bytes, so the beginning that it shares with an earlier one has no more
        than that many, whatever the vocabulary; blocks only make it less.
        """
        explained = self._around + self._sent.shared(text)
        try:
            told = await self._prober.text(text, stream=True, salt=self._salt)
        except DoctorError as error:
            if not self._name:
                raise
            raise DoctorError(f"{self._name}: {error}") from error
        self._sent.add(text)
        return Answer(told, explained)
