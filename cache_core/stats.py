"""Figures about the cache as one immutable snapshot."""

from dataclasses import dataclass

from cache_core.block_pool import BlockPool
from cache_core.eviction.retention import Retention
from cache_core.prefix_index import PrefixIndex


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Blocks by where they are (free + filling + cached + leased = total), then counts since the start."""

    total: int
    free: int
    filling: int  # a request's own: allocated, not committed
    cached: int  # ready and under no lease: evictable
    leased: int  # ready and pinned by at least one lease
    fragmentation: float  # 0..1, see BlockPool.fragmentation
    leases: int  # live ones
    evicted: int  # blocks that left the index
    acquires: int
    hits: int  # acquires that matched at least one block
    prompt_tokens: int  # summed over acquires
    matched_tokens: int  # summed over acquires
    kept: int  # blocks of prefixes that hints keep; what several have in common counts for each
    keeps_refused: int  # wishes to keep a prefix that were over a limit
    keeps_overruled: int  # kept prefixes that gave way because a request had no other room
    compacted: int  # blocks that were moved to lie together


class Counters:
    """What happened since the start. Not locked."""

    __slots__ = ("acquires", "compacted", "evicted", "hits", "matched_tokens", "prompt_tokens")

    def __init__(self) -> None:
        self.evicted = 0
        self.compacted = 0
        self.acquires = 0
        self.hits = 0
        self.prompt_tokens = 0
        self.matched_tokens = 0

    def acquired(self, prompt: int, matched: int) -> None:
        """One acquire of a prompt of that many tokens."""
        self.acquires += 1
        self.hits += matched > 0
        self.prompt_tokens += prompt
        self.matched_tokens += matched

    def snapshot(self, pool: BlockPool, index: PrefixIndex, retention: Retention, leases: int) -> CacheStats:
        """These counts together with the state of the cache's parts."""
        return CacheStats(
            total=pool.num_blocks,
            free=pool.free_count,
            filling=pool.num_blocks - pool.free_count - index.blocks,
            cached=index.unleased,
            leased=index.blocks - index.unleased,
            fragmentation=pool.fragmentation(),
            leases=leases,
            evicted=self.evicted,
            acquires=self.acquires,
            hits=self.hits,
            prompt_tokens=self.prompt_tokens,
            matched_tokens=self.matched_tokens,
            kept=retention.kept_blocks,
            keeps_refused=retention.refused,
            keeps_overruled=retention.overruled,
            compacted=self.compacted,
        )
