"""The tiered prefix cache: block pool, prefix index, leases, eviction."""

from cache_core.block_pool import BlockPool
from cache_core.errors import (
    CacheError,
    IntegrityError,
    LeaseError,
    LeaseReleasedError,
    OutOfBlocksError,
    UnknownPolicyError,
)
from cache_core.eviction import LRU, EvictionPolicy, RetentionHints, RetentionLimits
from cache_core.in_flight import InFlight
from cache_core.lease import Lease
from cache_core.prefix_cache import CopyBlocks, PrefixCache
from cache_core.stats import CacheStats

__all__ = [
    "LRU",
    "BlockPool",
    "CacheError",
    "CacheStats",
    "CopyBlocks",
    "EvictionPolicy",
    "InFlight",
    "IntegrityError",
    "Lease",
    "LeaseError",
    "LeaseReleasedError",
    "OutOfBlocksError",
    "PrefixCache",
    "RetentionHints",
    "RetentionLimits",
    "UnknownPolicyError",
]
