"""What lint found in a log."""

from collections.abc import Mapping
from dataclasses import dataclass

from canon.results import Finding


@dataclass(frozen=True, slots=True)
class RuleGain:
    """Reuse before and after one rule, the rules before it being in force."""

    rule: str
    reuse_before: float
    reuse_after: float
    tokens_saved: int
    requests: int  # that the rule edited


@dataclass(frozen=True, slots=True)
class LintReport:
    """Findings, dearest first, and the reuse rate of the log as it is and as canon would make it."""

    findings: tuple[Finding, ...]
    first_seen: tuple[int, ...]  # of each finding: the request it was first seen in, counted from 0
    reuse_before: float  # reused / prompt tokens, 0 to 1, in a prefix cache that forgets nothing
    reuse_after: float
    requests: int
    prompt_tokens: int
    rules: tuple[RuleGain, ...]
    template: tuple[Finding, ...] = ()  # what the model's chat template does to prefixes, where it is known
    incomplete: str = ""  # why figures are lower bounds; empty: they are not

    def as_json(self) -> Mapping[str, object]:
        """Plain data with the field names as they are here."""
        return {
            "findings": [
                {**_plain(finding), "first_seen": seen}
                for finding, seen in zip(self.findings, self.first_seen, strict=True)
            ],
            "reuse_before": self.reuse_before,
            "reuse_after": self.reuse_after,
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "rules": [_plain(gain) for gain in self.rules],
            "template": [_plain(finding) for finding in self.template],
            "incomplete": self.incomplete,
        }


def _plain(record: object) -> Mapping[str, object]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}  # type: ignore[attr-defined]
