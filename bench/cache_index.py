"""What the prefix index costs: shared blocks, memory, and how it takes to growing."""

import time
import tracemalloc
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cache_core import BlockPool, PrefixCache
from cache_core.eviction import DEFAULT_POLICY, policy_named

Tokens = NDArray[np.int32]

BLOCK = 16
SESSIONS = 42
SHARED = 7168  # tokens
PRIVATE = 256  # tokens of each session


@dataclass(frozen=True, slots=True)
class Growth:
    """Seconds of the slowest matches (p99), by blocks in the index."""

    small_blocks: int
    large_blocks: int
    small_p99: float
    large_p99: float


def shared_blocks() -> float:
    """Physical blocks of 42 live sessions on one prefix, over one session's shared and all private ones."""
    random = np.random.default_rng(1)
    shared = random.integers(0, 50_000, SHARED, dtype=np.int32)
    cache = PrefixCache(BlockPool(8192, BLOCK))
    leases = []
    for _ in range(SESSIONS):
        tokens = np.concatenate([shared, random.integers(0, 50_000, PRIVATE, dtype=np.int32)])
        lease = cache.acquire(tokens)
        lease.extend(tokens[lease.matched :])
        lease.commit()
        leases.append(lease)
    stats = cache.stats()
    return (stats.total - stats.free) / ((SHARED + SESSIONS * PRIVATE) // BLOCK)


def metadata_bytes(sequences: int = 400, private: int = 192) -> float:
    """Bytes a cached block takes beside its token ids, with the default policy.

    `private` tokens end each sequence: the fewer, the fewer blocks share what is held for a sequence.
    """
    random = np.random.default_rng(2)
    shared = [random.integers(0, 50_000, 2048, dtype=np.int32) for _ in range(8)]
    policy = policy_named(DEFAULT_POLICY)
    tracemalloc.start()
    cache = PrefixCache(BlockPool(sequences * (private // BLOCK) + 8 * 2048 // BLOCK + 64, BLOCK), policy)
    before = tracemalloc.get_traced_memory()[0] + policy.outside_bytes
    for number in range(sequences):
        _insert(
            cache, np.concatenate([shared[number % 8], random.integers(0, 50_000, private, dtype=np.int32)])
        )
    taken = tracemalloc.get_traced_memory()[0] + policy.outside_bytes - before
    tracemalloc.stop()
    blocks = cache.stats().cached
    return taken / blocks - BLOCK * 4


def growth(small: int = 20_000, large: int = 2_000_000, asked: int = 2000) -> Growth:
    """Match times in a small and a large index, asked alternately so that both meet the same machine."""
    caches = [_filled(small), _filled(large)]
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(asked):
        for (cache, prompts), seen in zip(caches, times, strict=True):
            prompt = prompts[number * 7919 % len(prompts)]
            started = time.perf_counter()
            cache.match(prompt)
            seen.append(time.perf_counter() - started)
    p99 = [sorted(seen)[int(len(seen) * 0.99)] for seen in times]
    return Growth(small, large, p99[0], p99[1])


def _filled(blocks: int) -> tuple[PrefixCache, list[Tokens]]:
    """An index of that many blocks in prompts of 4k tokens, half of each shared by ten; some to ask for."""
    random = np.random.default_rng(3)
    cache = PrefixCache(BlockPool(blocks + 1024, BLOCK), policy="lru")
    kept: list[Tokens] = []
    shared = random.integers(0, 50_000, 2048, dtype=np.int32)
    while cache.stats().cached < blocks:
        if len(kept) % 10 == 0:
            shared = random.integers(0, 50_000, 2048, dtype=np.int32)
        prompt = np.concatenate([shared, random.integers(0, 50_000, 2048, dtype=np.int32)])
        _insert(cache, prompt)
        kept.append(prompt)
    return cache, kept


def _insert(cache: PrefixCache, tokens: Tokens) -> None:
    lease = cache.acquire(tokens)
    lease.extend(tokens[lease.matched :])
    lease.commit()
    lease.release()
