"""An engine's own count of what it reused, whatever it calls its metrics: what reports are checked against."""

from collections.abc import Mapping
from dataclasses import dataclass

from engine_adapters.base import Tier
from engine_adapters.remote.prometheus import labelled


@dataclass(frozen=True, slots=True)
class ReuseCounters:
    """Prompt tokens since the engine's start. None: it does not count that."""

    prompt: int | None  # that went through the prefix cache's look-up
    reused: int | None
    by_tier: Mapping[Tier, int] | None  # only tiers the engine counts


# Where vLLM says a token came from. What a connector brings is shared with others: a store.
_VLLM_SOURCES: Mapping[str, Tier] = {
    "device": "device",
    "host": "host",
    "disk": "disk",
    "p2p": "store",
    "external_unspecified": "store",
}
_SGLANG_SOURCES: Mapping[str, Tier] = {
    "device": "device",
    "host": "host",
}  # others are storage backends' names
_LOCAL_STORAGE = ("file", "disk", "nvme")


def vllm_reuse(counters: Mapping[str, float]) -> ReuseCounters:
    """`vllm:prefix_cache_queries`, `vllm:prefix_cache_hits` (and the external ones), by source where it says so.

    External queries are asked for what the device did not have, so they add nothing to the prompt.
    """
    prompt = total(counters, "vllm:prefix_cache_queries_total")
    local = total(counters, "vllm:prefix_cache_hits_total")
    external = total(counters, "vllm:external_prefix_cache_hits_total")
    reused = None if local is None else local + (external or 0)
    sources = by_label(counters, "vllm:prompt_tokens_cached_by_source_total", "source")
    tiers: dict[Tier, int] = {}
    for source, tokens in sources.items():
        tier = _VLLM_SOURCES.get(source, "store")
        tiers[tier] = tiers.get(tier, 0) + tokens
    if not tiers and local is not None:
        tiers = {"device": local, **({"store": external} if external is not None else {})}
    return ReuseCounters(prompt, reused, tiers or None)


def sglang_reuse(counters: Mapping[str, float]) -> ReuseCounters:
    """`sglang:prompt_tokens_total` and `sglang:cached_tokens_total{cache_source}`.

    The engine creates the latter with its first cached token: before that it is 0 where prompts were counted.
    """
    prompt = total(counters, "sglang:prompt_tokens_total")
    sources = by_label(counters, "sglang:cached_tokens_total", "cache_source")
    tiers: dict[Tier, int] = {}
    for source, tokens in sources.items():
        if source == "total":
            continue
        tier = _SGLANG_SOURCES.get(source) or _storage(source)
        tiers[tier] = tiers.get(tier, 0) + tokens
    reused = sources.get("total", sum(tiers.values())) if sources else (0 if prompt is not None else None)
    return ReuseCounters(prompt, reused, tiers or None)


def _storage(source: str) -> Tier:
    return "disk" if any(word in source.lower() for word in _LOCAL_STORAGE) else "store"


def total(counters: Mapping[str, float], name: str) -> int | None:
    """The sum over all samples of one name; None where there are none."""
    found = labelled(counters, name)
    return int(sum(found.values())) if found else None


def by_label(counters: Mapping[str, float], name: str, label: str) -> dict[str, int]:
    """One name's samples, summed by the value of one label."""
    sums: dict[str, int] = {}
    for labels, value in labelled(counters, name).items():
        key = label_value(labels, label)
        if key is not None:
            sums[key] = sums.get(key, 0) + int(value)
    return sums


def label_value(labels: str, name: str) -> str | None:
    """The value of one label in `a="1",b="2"`; values with quotes in them are not ours to read."""
    for part in labels.split('",'):
        key, _, value = part.partition('="')
        if key == name:
            return value.rstrip('"')
    return None
