"""Tiers that may hang: what has not returned in time is left alone, and a tier of which too much hangs is away."""

from cache_core.tiered.watch.limits import CallLimits
from cache_core.tiered.watch.watched_tier import WatchedTier

__all__ = ["CallLimits", "WatchedTier"]
