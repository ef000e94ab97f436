"""Policies by name."""

from collections.abc import Callable

from cache_core.errors import UnknownPolicyError
from cache_core.eviction.cost import Cost
from cache_core.eviction.lru import LRU
from cache_core.eviction.lru_k import LRUK
from cache_core.eviction.native_lrfu import adaptive_lrfu
from cache_core.eviction.policy import EvictionPolicy

DEFAULT_POLICY = "adaptive_lrfu"
POLICIES: dict[str, Callable[[], EvictionPolicy]] = {
    "adaptive_lrfu": adaptive_lrfu,
    "lru": LRU,
    "lru_k": LRUK,
    "cost": Cost,
}


def policy_named(name: str) -> EvictionPolicy:
    """A new policy of that name.

    Raises:
        UnknownPolicyError: there is none.
    """
    if name not in POLICIES:
        raise UnknownPolicyError(
            f"no eviction policy is called {name!r}; there are {', '.join(sorted(POLICIES))}"
        )
    return POLICIES[name]()
