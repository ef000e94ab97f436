"""What an examination found."""

import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

_OPTION = re.compile(r"--[a-z-]+")
Finding = Literal["yes", "no", "unknown", "absent"]


@dataclass(frozen=True, slots=True)
class Check:
    """One question with its answer.

    "no" is bad news, whatever the question; "unknown" could not be found out; "absent" is not there, and need not be.
    """

    name: str  # short and stable, for machines
    question: str
    finding: Finding
    detail: str
    fix: str = ""  # what to change, where something can be


def kind_shown(kind: str, *, known: bool) -> str:
    """The kind, as people read it."""
    return kind if known else "unknown (speaks OpenAI's routes)"


@dataclass(frozen=True, slots=True)
class Checkup:
    """All checks of one engine."""

    url: str
    kind: str
    model: str
    version: str | None
    checks: tuple[Check, ...]
    block_size: int | None  # tokens; None: not found
    requests: int  # that were sent
    prompt_tokens: int  # of those, as the engine counted them
    kind_known: bool = True  # False: it did not say what it is, and is asked as what speaks OpenAI's routes
    missing: tuple[str, ...] = ()  # flags with which it would tell more, each with what it brings

    @property
    def others(self) -> tuple[str, ...]:
        """Of those the ones that `fixes` does not name."""
        named = " ".join(self.fixes)
        return tuple(
            flag for flag in self.missing if not any(name in named for name in _OPTION.findall(flag))
        )

    @property
    def kind_shown(self) -> str:
        """The kind, as people read it."""
        return kind_shown(self.kind, known=self.kind_known)

    @property
    def healthy(self) -> bool:
        """Nothing is wrong, and the two questions that matter were answered."""
        found = {check.name: check.finding for check in self.checks}
        return "no" not in found.values() and found.get("reports") == found.get("repeat") == "yes"

    @property
    def fixes(self) -> tuple[str, ...]:
        """What to change, each once, in the order found."""
        return tuple(dict.fromkeys(check.fix for check in self.checks if check.fix and check.finding == "no"))

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.healthy:
            return "Its reuse figures can be trusted, as far as this shows."
        wrong = [check.question for check in self.checks if check.finding == "no"]
        if not wrong:
            return "Nothing is wrong, but not enough could be found out."
        return f"No: {len(wrong)} of {len(self.checks)} checks failed ({'; '.join(wrong)})."

    def as_json(self) -> dict[str, Any]:
        """The whole of it, with the verdict."""
        return {
            **asdict(self),
            "checks": [asdict(check) for check in self.checks],
            "healthy": self.healthy,
            "verdict": self.verdict,
            "fixes": list(self.fixes),
        }
