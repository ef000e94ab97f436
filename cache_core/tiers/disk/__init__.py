"""The disk tier: append-only segments, a crash-safe index, direct parallel reads."""

from cache_core.tiers.disk.disk_tier import DiskTier
from cache_core.tiers.disk.options import DiskOptions

__all__ = ["DiskOptions", "DiskTier"]
