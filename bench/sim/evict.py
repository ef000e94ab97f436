"""`kvgate sim evict`: eviction policies side by side over one trace."""

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.sim.replay import NAMES, OPT, Progress, SimResult, simulate
from bench.sim.report import as_json, print_results
from bench.sim.trace import Trace, read_trace
from cache_core import UnknownPolicyError

_QUIET_S = 2.0  # seconds that pass without a word


def main(path: Path, policies: Sequence[str], sizes: Sequence[int], *, block_size: int, json: bool) -> None:
    """Replay the trace and print: as JSON exactly what was asked for, for people together with OPT.

    Raises:
        TraceError: the trace cannot be read.
        UnknownPolicyError: there is no such policy.
    """
    names = list(dict.fromkeys(NAMES if "all" in policies else policies))
    if unknown := [name for name in names if name not in NAMES]:
        raise UnknownPolicyError(f"no policy is called {unknown[0]!r}; there are {', '.join(NAMES)} and all")
    _say(f"reading {path.name}")
    trace = read_trace(path).reblocked(block_size)
    if not json and OPT not in names:
        names.insert(0, OPT)
    results = list(_results(trace, names, list(dict.fromkeys(sizes))))
    if json:
        print(as_json(results).decode())
    else:
        title = f"{trace.name}, {len(trace.requests):,} requests, blocks of {block_size} tokens"
        print_results(title, results, sys.stdout)


def _results(trace: Trace, policies: Sequence[str], sizes: Sequence[int]) -> Iterator[SimResult]:
    for policy in policies:
        for size in sizes:
            yield simulate(trace, policy, size, _progress(f"{policy}, {size:,} blocks"))


def _progress(name: str) -> Progress:
    """Says on stderr how far it is, every other second."""
    said = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said >= _QUIET_S:
            said = time.monotonic()
            _say(f"{name}: {done / total:.0%}")

    return tell


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
