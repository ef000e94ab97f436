"""`usage` on the wire. What an engine did not say is left out, never written as 0."""

from collections.abc import Sequence
from typing import Any

from engine_adapters.base import Usage


def cached_tokens(usages: Sequence[Usage]) -> int | None:
    """Reused prompt tokens over all engine requests; None unless every one was reported."""
    total = 0
    for usage in usages:
        if usage.reuse.status != "reported" or usage.reuse.reused is None:
            return None
        total += usage.reuse.reused
    return total


def usage_object(usages: Sequence[Usage]) -> dict[str, Any]:
    """The sum over all engine requests of one API request."""
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
    reasoning = [usage.reasoning_tokens for usage in usages]
    if all(tokens is not None for tokens in reasoning):
        wire["completion_tokens_details"] = {"reasoning_tokens": sum(tokens or 0 for tokens in reasoning)}
    return wire
