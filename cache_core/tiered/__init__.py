"""One prefix cache over several tiers: what cooled down comes up again, or is recomputed where that is sooner."""

from cache_core.tiered.asking import Ask
from cache_core.tiered.fetch import Fetch
from cache_core.tiered.own_load import OwnLoad
from cache_core.tiered.purger import Purged
from cache_core.tiered.seen_below import SeenBelow
from cache_core.tiered.state_tiers import StateOptions
from cache_core.tiered.sweeper import Sweeper
from cache_core.tiered.tiered_cache import TieredCache, TieringOptions, WritePolicy
from cache_core.tiers.base import Watermarks

__all__ = [
    "Ask",
    "Fetch",
    "OwnLoad",
    "Purged",
    "SeenBelow",
    "StateOptions",
    "Sweeper",
    "TieredCache",
    "TieringOptions",
    "Watermarks",
    "WritePolicy",
]
