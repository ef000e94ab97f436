"""A cache of one-token blocks, driven by whole requests."""

from collections.abc import Callable, Sequence

import numpy as np

from cache_core import BlockPool, PrefixCache, RetentionHints, RetentionLimits
from cache_core.eviction import EvictionPolicy


def cache_of(
    num_blocks: int,
    policy: str | EvictionPolicy = "lru",
    limits: RetentionLimits | None = None,
    clock: Callable[[], float] = lambda: 0.0,
) -> PrefixCache:
    return PrefixCache(BlockPool(num_blocks, 1), policy, limits=limits, clock=clock)


def put(
    cache: PrefixCache, tokens: Sequence[int], hints: RetentionHints | None = None, scope: str = "default"
) -> int:
    """Serve these tokens, and as many as fit are cached; returns how many were. One more token is asked for."""
    ids = np.array(tokens, dtype=np.int32)
    lease = cache.acquire(np.append(ids, np.int32(-1)), scope)
    matched = lease.matched
    lease.extend(ids[matched : matched + cache.available()])
    lease.commit()
    lease.release(hints)
    return matched


def cached(cache: PrefixCache, tokens: Sequence[int], scope: str = "default") -> int:
    return cache.match(np.array(tokens, dtype=np.int32), scope)
