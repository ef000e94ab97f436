"""Counters of the embedded engine as metric families: flat names become names with labels and histograms."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from cache_core.histogram import SECONDS

Flat: TypeAlias = Mapping[str, float]
Plain: TypeAlias = GaugeMetricFamily | CounterMetricFamily

ENGINE = "kvgate_engine"  # the label with its name

_PREFIX = "kvgate_engine_"
_NO_NAME = re.compile(r"[^a-zA-Z0-9_]")
_NOW = frozenset(
    {
        "running",
        "waiting",
        "blocks_total",
        "blocks_free",
        "blocks_cached",
        "blocks_leased",
        "fragmentation",
        "cache_fragmentation",
        "cache_away",
        "cache_expected_saving_seconds",  # may shrink
        "state_snapshots",
        "state_snapshot_bytes",
        "host_states",
        "host_state_bytes",
    }
)
# What stands at the end of these names, see `cache_core.flat_record`. No tier has an underscore in it.
_PARTS = {
    "cache_matched_tokens": ("tier",),
    "cache_reused_tokens": ("tier",),
    "cache_passed_over_tokens": ("tier",),
    "cache_tier_hits": ("tier",),
    "cache_ghost_tokens": ("tier",),
    "cache_decided_load_blocks": ("tier",),
    "cache_fragmentation": ("tier",),
    "cache_compacted_blocks": ("tier",),
    "cache_moved_bytes": ("source", "target"),
    "cache_late_calls": ("tier", "kind"),
    "cache_away": ("tier", "kind"),
    "cache_transfer_seconds": ("source", "target"),
    "cache_drops": ("tier", "reason"),
    "cache_coded": ("tier", "outcome"),
    "cache_evictions": ("tier", "policy"),
    "cache_eviction_age_seconds": ("tier", "policy"),
    "cache_transfers": ("link", "priority", "outcome"),
    "cache_queue_seconds": ("link", "priority"),
}
PRIORITIES = ("waiting", "prefetch", "write_back")  # of `cache_core.transfer`
OUTCOMES = ("done", "failed", "cancelled", "expired", "refused")
_LINK = re.compile(f"(.+)_({'|'.join(PRIORITIES)})(?:_({'|'.join(OUTCOMES)}))?")
_HISTOGRAM = re.compile(r"(.+)_(count|sum|le_(.+))")
_BOUNDS = SECONDS[::2]  # every second one: each is a time series for each label


def families(engine: str, flat: Flat) -> list[Metric]:
    """Every figure of `EngineAdapter.counters()` with the engine's name as a label."""
    histograms, plain = _sorted(flat)
    numbers: dict[str, Plain] = {}
    for name, value in plain.items():
        stem, labels, values = _parsed(name)
        if stem not in numbers:
            numbers[stem] = _family(stem, (ENGINE, *labels))
        numbers[stem].add_metric([engine, *values], value)
    buckets: dict[str, HistogramMetricFamily] = {}
    for name, parts in histograms.items():
        stem, labels, values = _parsed(name)
        if stem not in buckets:
            buckets[stem] = HistogramMetricFamily(_named(stem), _text(stem), labels=(ENGINE, *labels))
        buckets[stem].add_metric([engine, *values], _buckets(parts), parts["sum"])
    return [*numbers.values(), *buckets.values()]


def _sorted(flat: Flat) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Histograms by name, then what is a plain number."""
    parts: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for name, value in flat.items():
        if match := _HISTOGRAM.fullmatch(name):
            parts[match[1]][match[3] or match[2]] = value
    histograms = {name: of for name, of in parts.items() if {"sum", "count"} <= of.keys()}
    taken = {f"{name}_{part}" for name, of in histograms.items() for part in ("count", "sum")}
    plain = {
        name: value
        for name, value in flat.items()
        if name not in taken and not ((match := _HISTOGRAM.fullmatch(name)) and match[1] in histograms)
    }
    return histograms, plain


def _parsed(name: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """`cache_drops_disk_wrong_size` -> `cache_drops`, (`tier`, `reason`), (`disk`, `wrong_size`)."""
    for stem, labels in _PARTS.items():
        if name.startswith(stem + "_"):
            values = _values(name[len(stem) + 1 :], labels)
            if len(values) == len(labels):
                return stem, labels, values
    return name, (), ()


def _values(rest: str, labels: tuple[str, ...]) -> tuple[str, ...]:
    if labels[0] != "link":
        return tuple(rest.split("_", len(labels) - 1))
    match = _LINK.fullmatch(rest)
    return () if match is None else tuple(part for part in match.groups() if part is not None)


def _family(stem: str, labels: tuple[str, ...]) -> Plain:
    if stem in _NOW:
        # `_total` ends the names of counters.
        return GaugeMetricFamily(_named(stem.removesuffix("_total")), _text(stem), labels=labels)
    return CounterMetricFamily(_named(stem), _text(stem), labels=labels)


def _named(stem: str) -> str:
    return _PREFIX + _NO_NAME.sub("_", stem)


def _text(stem: str) -> str:
    return f"The engine's own: {stem.replace('_', ' ')}."


def _buckets(parts: Mapping[str, float]) -> list[tuple[str, float]]:
    """All buckets, from those that have values: each counts what is at or below its bound."""
    told = sorted((float(bound), count) for bound, count in parts.items() if bound not in ("count", "sum"))
    return [*_filled(told), ("+Inf", parts["count"])]


def _filled(told: list[tuple[float, float]]) -> Iterator[tuple[str, float]]:
    at, upto = 0, 0.0
    for bound in _BOUNDS:
        # Told bounds are rounded to three digits.
        while at < len(told) and (told[at][0] <= bound or math.isclose(told[at][0], bound, rel_tol=1e-2)):
            upto = told[at][1]
            at += 1
        yield f"{bound:.3g}", upto
