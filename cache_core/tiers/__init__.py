"""Tiers outside the device. The disk tier and the store on a folder are in modules of their own."""

from cache_core.tiers.base import BlockBytes, Tier, TierStats
from cache_core.tiers.errors import FolderInUseError, PurgeFailedError, TierError

__all__ = ["BlockBytes", "FolderInUseError", "PurgeFailedError", "Tier", "TierError", "TierStats"]
