"""A CacheRecord as numbers under flat names, for whoever exports counters."""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from cache_core.drop_reason import DropReason
from cache_core.histogram import HistogramSnapshot
from cache_core.metrics import CacheRecord

Flat = Iterator[tuple[str, float]]

_COUNTS = ("lookups", "hits", "prompt_tokens", "recomputed_tokens", "spilled_bytes", "fetched_bytes")
_BY = (
    "matched_tokens",
    "reused_tokens",
    "passed_over_tokens",
    "tier_hits",
    "moved_bytes",
    "transfers",
    "drops",
    "coded",
    "evictions",
    "ghost_tokens",
    "compacted_blocks",
    "late_calls",
    "away",
)


def flat_record(record: CacheRecord) -> dict[str, float]:
    """Every figure of `record`, each name beginning with `cache_`.

    What is kept by something has that at the end: `cache_reused_tokens_host`, `cache_moved_bytes_device_host`,
    `cache_drops_disk_checksum`, `cache_evictions_device_adaptive_lrfu`. Of a histogram there are `.._count`,
    `.._sum` and, for every bound (seconds) that has values at or below it which the bound before has not,
    `.._le_<bound>`: how many there are up to it; `inf` is the last bound.
    """
    return {f"cache_{name}": value for name, value in _figures(record)}


def _figures(record: CacheRecord) -> Flat:
    for name in _COUNTS:
        yield name, float(getattr(record, name))
    for name in _BY:
        yield from _by(name, getattr(record, name))
    yield "decisions", float(record.decisions)
    yield "decisions_tried", float(record.tried)
    yield "decided_recompute_blocks", float(record.decided_recompute)
    yield from _by("decided_load_blocks", record.decided_load)
    yield "expected_saving_seconds", record.expected_saving
    yield from _histogram("regret_seconds", record.regret)
    yield from _by("fragmentation", record.fragmentation)
    yield from _histograms("queue_seconds", record.queued)
    yield from _histograms("transfer_seconds", record.seconds)
    yield from _histograms("eviction_age_seconds", record.eviction_age)


def _by(name: str, values: Mapping[Any, float]) -> Flat:
    for key, value in values.items():
        yield f"{name}_{_key(key)}", float(value)


def _histograms(name: str, histograms: Mapping[Any, HistogramSnapshot]) -> Flat:
    for key, histogram in histograms.items():
        yield from _histogram(f"{name}_{_key(key)}", histogram)


def _histogram(name: str, histogram: HistogramSnapshot) -> Flat:
    yield f"{name}_count", float(histogram.count)
    yield f"{name}_sum", histogram.sum
    bounds = (*histogram.bounds, float("inf"))
    for bound, count, upto in zip(bounds, histogram.counts, accumulate(histogram.counts), strict=True):
        if count:
            yield f"{name}_le_{bound:.3g}", float(upto)


def _key(key: Any) -> str:
    """`("host to disk", "waiting")` -> `host_to_disk_waiting`."""
    parts = key if isinstance(key, tuple) else (key,)
    names = (part.value if isinstance(part, DropReason) else str(part) for part in parts)
    return "_".join(names).replace(" ", "_")
