"""`kvgate bench cache`: the tiered prefix cache, each figure against its peer in the same run."""

import os
import tempfile
from pathlib import Path

from bench import cache_hits, cache_index, disk, match, radix_trees, transfer
from bench.cache_hits import Progress
from bench.peers.sglang_trees_peer import HOW_TO_INSTALL
from bench.report import Figure, publish, timed_progress

_MEMORY = Path("/dev/shm")  # noqa: S108  a folder that is no disk, on Linux


def run(folder: Path, rounds: int, progress: Progress) -> list[Figure]:
    """Every row; takes minutes."""
    return [
        *_hits(folder, rounds, progress),
        *_moves(folder, progress),
        *_trees(rounds, progress),
        *_index(progress),
    ]


def _hits(folder: Path, rounds: int, progress: Progress) -> list[Figure]:
    hits = cache_hits.run(folder / "tier", rounds, progress)
    return [
        Figure(f"TTFT, {cache_hits.PREFIX} tokens cached: {tier} hit", "Transformers", hits.transformers_cold,
               seconds, "s", hits.transformers_cold / seconds, target, "at least")
        for tier, seconds, target in (
            ("host", hits.host, 50), ("disk", hits.disk, 15), ("device", hits.device, 110)
        )
    ]  # fmt: skip


def _moves(folder: Path, progress: Progress) -> list[Figure]:
    progress("transfers between host and device")
    moved, checked = transfer.run(), transfer.run(checksums=True)
    progress("reads through the disk tier")
    read = disk.run(folder)
    copy, raw = "one big copy_", "raw parallel reads"
    rows = [
        _share("host to device", copy, moved.big_up, moved.up, 0.7),
        _share("device to host", copy, moved.big_down, moved.down, 0.7),
        _share("host to device, checksums included", copy, checked.big_up, checked.up, 0),
        _share("device to host, checksums included", copy, checked.big_down, checked.down, 0),
        _share("disk read through the tier, checks included", raw, read.raw, read.tier, 0.8),
    ]
    if read.over_files is not None and read.one_file_a_block is not None:
        saved = "torch.save, one file a block"
        rows.append(_share("disk read through the tier", saved, read.one_file_a_block, read.tier, 4))
    return rows + _without_a_disk()


def _without_a_disk() -> list[Figure]:
    """The same where the medium is main memory: what both ways cost beside the disk. No target."""
    if not os.access(_MEMORY, os.W_OK):
        return []
    read = disk.run(_MEMORY)
    if read.one_file_a_block is None:
        return []
    saved = "torch.save, one file a block"
    return [_share("the same in main memory, for comparison", saved, read.one_file_a_block, read.tier, 0)]


def _share(name: str, peer: str, theirs: float, ours: float, target: float) -> Figure:
    """Bytes a second, over the peer's."""
    return Figure(name, peer, theirs / 1e9, ours / 1e9, "GB/s", ours / theirs, target, "at least")


def _trees(rounds: int, progress: Progress) -> list[Figure]:
    return [row for one in radix_trees.run(rounds, progress) for row in tree_rows(one)]


def tree_rows(compared: radix_trees.TreeComparison) -> list[Figure]:
    """Match and insert with blocks of one size; the peer is the better of SGLang's trees, figure by figure."""
    ours, peer, blocks = compared.ours, compared.peer, f"blocks of {compared.page}"
    names = f"match and insert, {blocks}", f"match p50, {blocks}"
    their, speed, latency = "SGLang's better tree", ours.pairs_per_cpu_second, ours.match_p50
    if peer is None:
        return [
            Figure(names[0], their, None, speed, "pairs/CPU s", None, 1.5, "at least", HOW_TO_INSTALL),
            Figure(names[1], their, None, latency * 1e6, "us", None, 1, "at most", HOW_TO_INSTALL),
        ]
    return [
        Figure(names[0], their, peer.pairs_per_cpu_second, speed, "pairs/CPU s", speed / peer.pairs_per_cpu_second,
               1.5, "at least"),
        Figure(names[1], their, peer.match_p50 * 1e6, latency * 1e6, "us", latency / peer.match_p50, 1, "at most"),
    ]  # fmt: skip


def _index(progress: Progress) -> list[Figure]:
    progress("the prefix index")
    matched = match.run()
    share = cache_index.shared_blocks()
    size, short = cache_index.metadata_bytes(), cache_index.metadata_bytes(private=2 * cache_index.BLOCK)
    progress("an index of two million blocks")
    grown = cache_index.growth()
    return [
        Figure("match of a 250,000-token prefix", "1 MB memory compare", matched.compare, matched.match, "s",
               matched.ratio, 5, "at most"),
        Figure(f"blocks of {cache_index.SESSIONS} sessions on one 7k prefix", "one session + private", 1.0, share, "x",
               share, 1.02, "at most"),
        Figure("metadata a cached block, token ids aside", "-", None, size, "bytes", size, 250, "at most"),
        Figure("the same where sequences end in two blocks of their own", "-", None, short, "bytes", short, 250,
               "at most"),
        Figure("match p99, 2 million blocks", "20 thousand blocks", grown.small_p99 * 1e6, grown.large_p99 * 1e6, "us",
               grown.large_p99 / grown.small_p99, 2, "at most"),
    ]  # fmt: skip


def main(*, json: bool = False, quick: bool = False) -> bool:
    """Run, print, and say whether every target was reached."""
    progress = timed_progress()

    with tempfile.TemporaryDirectory(prefix="kvgate-bench-") as folder:
        figures = run(Path(folder), 1 if quick else 5, progress)
    facts = {"rounds": "quick" if quick else "full"}
    return publish(figures, facts, json=json)
