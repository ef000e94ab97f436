"""`usage` on the wire. What an engine did not say is left out, never written as 0."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from engine_adapters.base import ReuseReport, Tier, Usage
from engine_adapters.reuse.classes import predicted_within

HEADER = "x-kvgate-usage"  # `full` from a client asks for the object below
REUSE_HEADER = b"x-kvgate-reuse"  # of answers that are no stream


@dataclass(frozen=True, slots=True)
class UsageFacts:
    """What the object `usage.kvgate` says beside the engine's report. None: not known."""

    predicted: int | None  # tokens
    block_size: int | None  # tokens
    canon_edits: int


def kvgate_object(report: ReuseReport, facts: UsageFacts) -> dict[str, Any]:
    """The object `usage.kvgate`; null stands for what is not known."""
    return {
        "reused": report.reused,
        "recomputed": recomputed(report),
        "by_tier": None if report.by_tier is None else dict(report.by_tier),
        "status": report.status,
        "source": report.source,
        "predicted": predicted_within(facts.predicted, report.prompt, facts.block_size),
        "block_size": facts.block_size,
        "canon_edits": facts.canon_edits,
    }


def recomputed(report: ReuseReport) -> int | None:
    """Prompt tokens that were prefilled; unknown where the report cannot be right or does not say."""
    if report.status != "reported" or report.prompt is None or report.reused is None:
        return None
    return report.prompt - report.reused


def reuse_header(report: ReuseReport) -> bytes:
    """`reported; reused=48; prompt=60`, or `not_reported`."""
    counts = {"reused": report.reused, "prompt": report.prompt}
    said = [f"{name}={value}" for name, value in counts.items() if value is not None]
    return "; ".join([report.status, *said]).encode()


def cached_tokens(usages: Sequence[Usage]) -> int | None:
    """Reused prompt tokens over all engine requests; None unless every one was reported."""
    total = 0
    for usage in usages:
        if usage.reuse.status != "reported" or usage.reuse.reused is None:
            return None
        total += usage.reuse.reused
    return total


def reasoning_tokens(usages: Sequence[Usage]) -> int | None:
    """Over all engine requests; None unless every one said."""
    return _sum([usage.reasoning_tokens for usage in usages])


def matched_tokens(usages: Sequence[Usage]) -> int | None:
    """Over all engine requests; None unless every one said."""
    return _sum([usage.matched_tokens for usage in usages]) if usages else None


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def total_reuse(usages: Sequence[Usage]) -> ReuseReport:
    """One report over all engine requests; what one of them did not say is not known of them all."""
    reports = [usage.reuse for usage in usages]
    prompt = sum(usage.prompt_tokens for usage in usages)
    statuses = {report.status for report in reports}
    status: Literal["reported", "not_reported", "inconsistent"] = "reported"
    if "inconsistent" in statuses:
        status = "inconsistent"
    elif "not_reported" in statuses or not reports:
        status = "not_reported"
    counts = [report.reused for report in reports if report.reused is not None]
    whole = len(counts) == len(reports) and bool(reports)
    return ReuseReport(
        prompt=prompt,
        reused=sum(counts) if whole else None,
        by_tier=_by_tier(reports),
        source=reports[0].source if reports else "",
        status=status,
    )


def _by_tier(reports: Sequence[ReuseReport]) -> dict[Tier, int] | None:
    total: dict[Tier, int] = {}
    for report in reports:
        if report.by_tier is None:
            return None
        for tier, tokens in report.by_tier.items():
            total[tier] = total.get(tier, 0) + tokens
    return total


def usage_object(usages: Sequence[Usage], facts: UsageFacts | None = None) -> dict[str, Any]:
    """The sum over all engine requests of one API request; with `facts`, `kvgate` is in it."""
    prompt = sum(usage.prompt_tokens for usage in usages)
    completion = sum(usage.completion_tokens for usage in usages)
    wire: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    cached = cached_tokens(usages)
    if cached is not None:
        wire["prompt_tokens_details"] = {"cached_tokens": cached}
    reasoning = reasoning_tokens(usages)
    if reasoning is not None:
        wire["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    if facts is not None:
        wire["kvgate"] = kvgate_object(total_reuse(usages), facts)
    return wire
