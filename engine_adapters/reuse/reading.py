"""What one usage payload says, and the small steps that all readers share. A key that is missing says nothing."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from engine_adapters.base import ReuseReport, Tier

Payload = Mapping[str, Any]

NOTHING = ReuseReport(prompt=None, reused=None, by_tier=None, source="", status="not_reported")


class UsageRead(msgspec.Struct, frozen=True):
    """Tokens of one answer, as its engine counted them. None: not said."""

    reuse: ReuseReport
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None


NO_USAGE = UsageRead(NOTHING)


_EMPTY: Payload = MappingProxyType({})


def part(payload: Any, *keys: str) -> Payload:
    """The object below `keys`; empty where there is none."""
    for key in keys:
        # What was parsed is a dict; asking the abstract class takes ten times as long.
        if type(payload) is not dict and not isinstance(payload, Mapping):
            return _EMPTY
        payload = payload.get(key)
    return payload if type(payload) is dict or isinstance(payload, Mapping) else _EMPTY


def count(payload: Payload, key: str) -> int | None:
    """A number of tokens; None for what is missing, null or no whole number."""
    value = payload.get(key)
    if value is None or type(value) is int:  # as nearly all are
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return (
        int(value)
        if value == value and value not in (float("inf"), float("-inf")) and value == int(value)
        else None
    )


def report(
    prompt: int | None, reused: int | None, source: str, by_tier: Mapping[Tier, int] | None = None
) -> ReuseReport:
    """A report with its status: what cannot be true is kept and flagged, never clamped."""
    if reused is None:
        return ReuseReport(prompt, None, None, source, "not_reported")
    odd = reused < 0 or (prompt is not None and (prompt < 0 or reused > prompt))
    if by_tier is not None:
        odd = odd or sum(by_tier.values()) != reused or min(by_tier.values(), default=0) < 0
    return ReuseReport(prompt, reused, by_tier, source, "inconsistent" if odd else "reported")


def weak_zero(given: ReuseReport, why: str) -> ReuseReport:
    """A 0 that this engine also writes where it does not know is no 0."""
    if given.reused != 0:
        return given
    return replace(given, reused=None, by_tier=None, source=f"{given.source} ({why})", status="not_reported")
