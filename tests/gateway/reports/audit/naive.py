"""The audit's figures, worked out the slow way: row by row, as the words of the design say it."""

from collections import Counter, defaultdict
from math import ceil, floor
from statistics import median
from typing import Any

from gateway.ledger import LedgerRow

KEYS = ("tenant", "model", "engine", "route")
CONSISTENT = ("cold", "partial", "warm", "too short")


def reusable(row: LedgerRow) -> int:
    assert row.prompt is not None
    block = row.block_size or 1
    return floor((row.prompt - 1) / block) * block


def class_of(row: LedgerRow) -> str:
    if row.status >= 400 or row.status == 0:
        return "failed"
    if row.reuse_status == "inconsistent":
        return "inconsistent"
    if row.reuse_status == "reported" and row.reused is not None and row.prompt is not None:
        if row.reused > row.prompt or row.reused < 0:
            return "inconsistent"
        if reusable(row) <= 0:
            return "too short"
        share = row.reused / reusable(row)
        return "cold" if share < 0.01 else "warm" if share >= 0.99 else "partial"
    return "not reported"


def ttft(row: LedgerRow) -> float | None:
    return row.first_token - row.arrival if row.stream and row.first_token is not None else None


def tpot(row: LedgerRow) -> float | None:
    first = ttft(row)
    if first is None or row.end is None or row.completion is None or row.completion < 2:
        return None
    return (row.end - row.arrival - first) / (row.completion - 1)


def ranked(values: list[float], percent: int) -> float:
    return sorted(values)[max(0, ceil(len(values) * percent / 100) - 1)]


def percentiles(values: list[float | None]) -> tuple[float, ...] | None:
    known = [value for value in values if value is not None]
    return (len(known), *(ranked(known, percent) for percent in (50, 90, 99))) if known else None


def rate(rows: list[LedgerRow]) -> float | None:
    """Seconds a computed token."""
    points = [
        (row.prompt - row.reused, first)
        for row in rows
        if class_of(row) in CONSISTENT and (first := ttft(row)) is not None
    ]
    if len(points) < 9:
        return None
    third = len(points) // 3
    ordered = sorted(x for x, _ in points)
    low = [point for point in points if point[0] <= ordered[third - 1]]
    high = [point for point in points if point[0] >= ordered[-third]]
    run, rise = (median(p[i] for p in high) - median(p[i] for p in low) for i in (0, 1))
    return rise / run if run > 0 and rise > 0 else None


def rates(rows: list[LedgerRow]) -> dict[tuple[str, str | None], float | None]:
    by_engine: dict[tuple[str, str | None], list[LedgerRow]] = defaultdict(list)
    for row in rows:
        by_engine[row.model, row.engine].append(row)
    return {key: rate(members) for key, members in by_engine.items()}


def figures(rows: list[LedgerRow], its_rates: dict[tuple[str, str | None], float | None]) -> dict[str, Any]:
    good = [row for row in rows if class_of(row) in CONSISTENT]
    reused = sum(row.reused for row in good)
    recomputed = sum(row.prompt - row.reused for row in good)
    told = [row for row in good if row.by_tier]
    estimated = [row for row in good if its_rates[row.model, row.engine] is not None]
    return {
        "requests": len(rows),
        "classes": Counter(class_of(row) for row in rows),
        "reused": reused,
        "recomputed": recomputed,
        "reuse_rate": reused / (reused + recomputed) if reused + recomputed else None,
        "tiers": {
            tier: n
            for tier in ("device", "host", "disk", "store")
            if (n := sum(row.by_tier.get(tier, 0) for row in good))
        },
        "untold_tier": reused - sum(sum(row.by_tier.values()) for row in told),
        "saved": sum(row.reused * its_rates[row.model, row.engine] for row in estimated),
        "estimated_tokens": sum(row.reused for row in estimated),
    }


def causes(rows: list[LedgerRow]) -> dict[tuple[str, str], tuple[int, int]]:
    tokens: Counter[tuple[str, str]] = Counter()
    requests: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if class_of(row) not in CONSISTENT:
            continue
        lost = max(0, reusable(row) - row.reused)
        expected = min(row.predicted, reusable(row)) if row.predicted is not None else row.reused
        gap = max(0, expected - row.reused)
        for key, n in (
            (("gap", row.gap_cause or "estimate"), gap),
            (("divergence", row.divergence.cause if row.divergence else "new text"), lost - gap),
        ):
            if n:
                tokens[key] += n
                requests[key] += 1
    return {key: (tokens[key], requests[key]) for key in tokens}
