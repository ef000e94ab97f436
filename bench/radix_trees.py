"""Match and insert over shared prefixes, against SGLang's radix trees in one run."""

import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.peers.sglang_trees_peer import TREES, SglangTreesPeer, TreeFigures, interpreter
from cache_core import BlockPool, PrefixCache

PAGES = (1, 16)  # tokens in one block
Tokens = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TreeComparison:
    """Medians of alternating rounds with blocks of `page` tokens; `peer` is each figure's better tree."""

    page: int
    ours: TreeFigures
    peer: TreeFigures | None  # None: not installed


@dataclass(frozen=True, slots=True)
class Workload:
    """Random sequences: one of `prefixes` shared beginnings, then an end of their own. Ranges are tokens."""

    sequences: int = 5000
    prefixes: int = 50
    shared: tuple[int, int] = (4096, 8192)
    private: tuple[int, int] = (16, 512)
    seed: int = 0

    def make(self) -> list[Tokens]:
        """The sequences, in the order in which they come."""
        random = np.random.default_rng(self.seed)

        def tokens(length: tuple[int, int]) -> Tokens:
            return random.integers(0, 150_000, int(random.integers(*length, endpoint=True)), dtype=np.int32)

        shared = [tokens(self.shared) for _ in range(self.prefixes)]
        which = random.integers(0, self.prefixes, self.sequences).tolist()
        return [np.concatenate([shared[number], tokens(self.private)]) for number in which]


def run(
    rounds: int, progress: Callable[[str], None], workload: Workload | None = None, policy: str = "lru"
) -> list[TreeComparison]:
    """Each tree in turn, a new one for each round. Ours evicts by the same policy as SGLang's, by age."""
    sequences = (workload or Workload()).make()
    python = interpreter(os.environ)
    if python is None:
        return [TreeComparison(page, _ours(sequences, page, policy), None) for page in PAGES]
    with tempfile.TemporaryDirectory(prefix="kvgate-bench-") as folder:
        path = Path(folder) / "sequences.npz"
        np.savez(path, tokens=np.concatenate(sequences), ends=np.cumsum([len(one) for one in sequences]))
        with SglangTreesPeer(python, path) as peer:
            return [_compared(peer, sequences, page, policy, rounds, progress) for page in PAGES]


def _compared(
    peer: SglangTreesPeer,
    sequences: Sequence[Tokens],
    page: int,
    policy: str,
    rounds: int,
    progress: Callable[[str], None],
) -> TreeComparison:
    ours: list[TreeFigures] = []
    theirs: dict[str, list[TreeFigures]] = {tree: [] for tree in TREES}
    for number in range(1, rounds + 1):
        progress(f"radix trees, pages of {page}: {number} of {rounds}")
        ours.append(_ours(sequences, page, policy))
        for tree, seen in theirs.items():
            seen.append(peer.measure(tree, page))
    medians = [_median(seen) for seen in theirs.values()]
    if any(median.tokens != _median(ours).tokens for median in medians):
        raise RuntimeError("the trees do not hold the same: they were not given the same")
    better = TreeFigures(
        max(median.pairs_per_cpu_second for median in medians),
        min(median.match_p50 for median in medians),
        medians[0].tokens,
    )
    return TreeComparison(page, _median(ours), better)


def _median(seen: Sequence[TreeFigures]) -> TreeFigures:
    return TreeFigures(
        statistics.median(one.pairs_per_cpu_second for one in seen),
        statistics.median(one.match_p50 for one in seen),
        seen[0].tokens,
    )


def _ours(sequences: Sequence[Tokens], page: int, policy: str) -> TreeFigures:
    """Acquire (match, lock, block numbers), insert and release each sequence, as a scheduler does."""
    blocks = sum(len(one) for one in sequences) // page  # nothing is evicted
    cache = PrefixCache(BlockPool(blocks, page), policy=policy)
    matches: list[float] = []
    gc.collect()
    clock, started = time.perf_counter, time.process_time()
    for tokens in sequences:
        before = clock()
        lease = cache.acquire(tokens)
        held = lease.blocks
        matches.append(clock() - before)
        lease.extend(tokens[len(held) * page :])
        lease.commit()
        lease.release()
    spent = time.process_time() - started
    held_tokens = cache.stats().cached * page
    return TreeFigures(len(sequences) / spent, statistics.median(matches), held_tokens)


def main() -> None:
    """Print the figures."""
    for policy in ("lru", "adaptive_lrfu"):
        for one in run(5, lambda _: None, policy=policy):
            print(policy, one)


if __name__ == "__main__":
    main()
