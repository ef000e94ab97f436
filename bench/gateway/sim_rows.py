"""Rows of `kvgate sim route`: where requests of a real trace would have hit."""

from collections.abc import Callable, Sequence
from pathlib import Path

from bench.report import Figure
from bench.sim.requests import read_requests
from bench.sim.route import AFFINITY, Plan, RouteResult, compare

_REPLICAS = 8
_SIZES = (1_000, 2_500, 6_250)  # blocks of each replica
_PREFILL = 8_000.0  # tokens a second
_HASHED = "consistent_hash"


def conversations(trace: Path, progress: Callable[[str], None], *, quick: bool) -> list[Figure]:
    """Hits over round-robin's and over consistent hashing's, the gap to one large cache, and balance, by size."""
    return [row for blocks in _sizes(quick) for row in _rows(_compared(trace, (_HASHED,), blocks, progress))]


def agents(trace: Path, progress: Callable[[str], None], *, quick: bool) -> list[Figure]:
    """Hits over those of a ten-line affinity rule, by size."""
    figures = []
    for blocks in _sizes(quick):
        ours, rule, _ = _compared(trace, (AFFINITY,), blocks, progress)
        name = f"coding-agent trace, {blocks:,} blocks: hits over a ten-line affinity rule"
        figures.append(_ratio(name, "affinity rule", rule.hit_rate, ours.hit_rate, 1.0))
    return figures


def _sizes(quick: bool) -> Sequence[int]:
    return _SIZES[1:2] if quick else _SIZES


def _compared(
    trace: Path, others: Sequence[str], blocks: int, progress: Callable[[str], None]
) -> list[RouteResult]:
    """Ours, the others, round-robin."""
    progress(f"{trace.name}: {_REPLICAS} replicas of {blocks:,} blocks")
    plan = Plan(_REPLICAS, blocks, _PREFILL)
    return compare(read_requests(trace), ["prefix", *others, "round_robin"], plan, progress)


def _rows(results: Sequence[RouteResult]) -> list[Figure]:
    ours, hashed, robin = results
    head = f"conversation trace, {ours.blocks:,} blocks: "
    gap = 100 * ours.gap_to_one_cache
    return [
        _ratio(head + "hits over round-robin's", "round-robin", robin.hit_rate, ours.hit_rate, 2.7),
        _ratio(head + "over consistent hashing's", "consistent hash", hashed.hit_rate, ours.hit_rate, 1.0),
        Figure(head + "fewer hits than one cache of 8 x", "", None, gap, "%", gap, 3.0, "at most"),
        Figure(head + "recomputed tokens, most over mean", "", None, ours.imbalance, "", ours.imbalance, 1.1,
               "at most"),
    ]  # fmt: skip


def _ratio(name: str, peer: str, theirs: float, ours: float, target: float) -> Figure:
    ratio = None if theirs <= 0 else ours / theirs
    return Figure(name, peer, 100 * theirs, 100 * ours, "% of blocks", ratio, target, "at least")
