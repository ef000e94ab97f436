"""A trace replayed over the real prefix cache: index, leases and policy, without bytes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.sim.opt import optimal_hits
from bench.sim.trace import Ids, Trace
from cache_core import BlockPool, PrefixCache
from cache_core.eviction import POLICIES

OPT = "opt"
NAMES = (OPT, *POLICIES)

Progress = Callable[[int, int], None]  # requests done, of how many

_TAIL = np.array([-1], dtype=np.int32)


@dataclass(frozen=True, slots=True)
class SimResult:
    """One policy at one capacity."""

    policy: str
    blocks: int
    hit_rate: float  # blocks that hit / blocks asked for
    requests: int


def simulate(trace: Trace, policy: str, blocks: int, progress: Progress | None = None) -> SimResult:
    """Replay `trace` through a cold cache of `blocks` blocks.

    A request hits the blocks at its beginning that are cached, one after the other. While it runs its path is
    pinned; what does not fit beside it is computed and not kept. Requests follow one another.

    The cache never holds more than `blocks`. A simulator that lets a block in before it makes room holds one
    more at times, which is enough to change the third decimal where hit rates rise steeply with capacity.

    Raises:
        UnknownPolicyError: there is no such policy.
    """
    if policy == OPT:
        hits = optimal_hits(trace.requests, blocks, progress)
    else:
        hits = _replayed(trace.requests, PrefixCache(BlockPool(blocks, 1), policy), progress)
    return SimResult(policy, blocks, hits / trace.blocks, len(trace.requests))


def _replayed(requests: Sequence[Ids], cache: PrefixCache, progress: Progress | None) -> int:
    hits = 0
    for number, ids in enumerate(requests):
        # the last token of a prompt is never reused: with one more, every block of the trace can be
        lease = cache.acquire(np.append(ids, _TAIL))
        hits += lease.matched
        lease.extend(ids[lease.matched : lease.matched + cache.available()])
        lease.commit()
        lease.release()
        if progress is not None and number % 256 == 0:
            progress(number, len(requests))
    return hits
