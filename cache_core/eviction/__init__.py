"""Which cached prefix goes first when blocks run short."""

from cache_core.eviction.adaptive_lrfu import AdaptiveLRFU
from cache_core.eviction.cost import BlockCost, Cost
from cache_core.eviction.hints import RetentionHints, RetentionLimits
from cache_core.eviction.lru import LRU
from cache_core.eviction.lru_k import LRUK
from cache_core.eviction.policy import EvictionPolicy, MeasuredCosts
from cache_core.eviction.registry import DEFAULT_POLICY, POLICIES, policy_named

__all__ = [
    "DEFAULT_POLICY",
    "LRU",
    "LRUK",
    "POLICIES",
    "AdaptiveLRFU",
    "BlockCost",
    "Cost",
    "EvictionPolicy",
    "MeasuredCosts",
    "RetentionHints",
    "RetentionLimits",
    "policy_named",
]
