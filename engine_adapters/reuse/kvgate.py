"""Usage of another kvgate: the standard fields, and all it knows in `usage.kvgate` where that was asked for."""

from collections.abc import Mapping
from typing import Any, get_args

from msgspec.structs import replace

from engine_adapters.base import ReuseReport, Tier
from engine_adapters.reuse.hosted import read_anthropic
from engine_adapters.reuse.openai import read_openai
from engine_adapters.reuse.reading import Payload, UsageRead, count, part, report

_SOURCE = "usage.kvgate"
_TIERS: tuple[Tier, ...] = get_args(Tier)
_ANTHROPICS = ("cache_read_input_tokens", "cache_creation_input_tokens")


def read_kvgate(payload: Payload) -> UsageRead:
    """Every route's usage. What the other one flags stays flagged, and what it does not know is not known."""
    usage = part(payload, "usage") or part(payload, "message", "usage")
    read = read_anthropic(payload) if any(name in usage for name in _ANTHROPICS) else read_openai(payload)
    told = part(usage, "kvgate")
    return replace(read, reuse=_report(read.reuse.prompt, told)) if told else read


def _report(prompt: int | None, told: Payload) -> ReuseReport:
    by_tier = _tiers(told.get("by_tier"))
    found = report(prompt, count(told, "reused"), _SOURCE, by_tier)
    status = told.get("status")
    if status == "inconsistent":
        return replace(found, by_tier=by_tier, status="inconsistent")
    if status != "reported":
        return ReuseReport(prompt, None, None, _SOURCE, "not_reported")
    return found


def _tiers(told: Any) -> dict[Tier, int] | None:
    if not isinstance(told, Mapping):
        return None
    counts = {tier: count(told, tier) for tier in _TIERS if tier in told}
    return {tier: tokens for tier, tokens in counts.items() if tokens is not None}
