"""Usage of a relayed answer on its way to the client: what is not known is left out, and all is told if wanted."""

from collections.abc import Mapping
from typing import Any

from engine_adapters.base import ReuseReport
from engine_adapters.remote.relay import Rewrite
from engine_adapters.reuse.reading import UsageRead
from gateway.wire.usage import UsageFacts, kvgate_object

# Where engines write cached tokens: an object of `usage` and its key, or a key of `usage` itself.
_PLACES = (
    ("prompt_tokens_details", "cached_tokens"),
    ("input_tokens_details", "cached_tokens"),
    (None, "cached_tokens"),
)


def usage_rewrite(facts: UsageFacts | None) -> Rewrite:
    """What is done to usage. `facts`: tell all that is known; None: the standard fields only."""
    return _STANDARD if facts is None else _usage_rewrite(facts)


def _usage_rewrite(facts: UsageFacts | None) -> Rewrite:
    def rewrite(payload: dict[str, Any], read: UsageRead) -> Mapping[str, Any]:
        if payload.get("type") == "message_start":  # a stream that tells usage again when it ends
            return payload
        inner = payload.get("response")
        if isinstance(inner, dict) and isinstance(inner.get("usage"), dict):
            usage = _usage(inner["usage"], read.reuse, facts)
            return payload if usage is inner["usage"] else {**payload, "response": {**inner, "usage": usage}}
        given = payload.get("usage")
        if not isinstance(given, dict):
            return payload
        usage = _usage(given, read.reuse, facts)
        return payload if usage is given else {**payload, "usage": usage}

    return rewrite


_STANDARD = _usage_rewrite(None)


def _usage(usage: dict[str, Any], report: ReuseReport, facts: UsageFacts | None) -> dict[str, Any]:
    if report.status == "not_reported":
        usage = _without_cached(usage)
    return usage if facts is None else {**usage, "kvgate": kvgate_object(report, facts)}


def _without_cached(usage: dict[str, Any]) -> dict[str, Any]:
    """Without a number that says nothing: a 0 that this engine also writes where it does not know."""
    for place, key in _PLACES:
        holder = usage if place is None else usage.get(place)
        if not isinstance(holder, dict) or key not in holder:
            continue
        left = {name: value for name, value in holder.items() if name != key}
        if place is None:
            usage = left
        elif left:
            usage = {**usage, place: left}
        else:
            usage = {name: value for name, value in usage.items() if name != place}
    return usage
