"""`routing:` in the configuration file: how replicas of an engine are chosen."""

from typing import Annotated, Literal

from pydantic import Field

from gateway.config.base import ConfigModel
from gateway.routing.settings import RoutingSettings

_KEY_BYTES = 250  # of memory for one key of the index
_MIB = 1 << 20


class RoutingConfig(ConfigModel):
    """Of all engines; how much one replica caches is the engine's own `cache_tokens`."""

    policy: Literal["prefix", "least_load", "round_robin", "consistent_hash"] = "prefix"
    # The next ones count for `prefix`. Tokens a second of one replica, until it is measured.
    prefill_tokens_per_s: Annotated[float, Field(gt=0, le=1e9)] = 8000.0
    recompute_price: Annotated[float, Field(ge=1, le=1000)] = 8.0  # of a token that is computed again
    bound: Annotated[float, Field(ge=1, le=100)] = 1.25  # what waits at a replica over the mean, at most
    slack_s: Annotated[float, Field(ge=0, le=3600)] = 30.0  # of prefill, which may wait beyond that
    index_mib: Annotated[float, Field(ge=1, le=1 << 20)] = 96  # of memory for each engine's prefix index

    def of(self, cache_tokens: int | None) -> RoutingSettings:
        """For an engine whose replicas cache so many tokens; None: that is not known."""
        return RoutingSettings(
            policy=self.policy,
            capacity_tokens=cache_tokens,
            prefill_tokens_per_s=self.prefill_tokens_per_s,
            recompute_price=self.recompute_price,
            bound=self.bound,
            slack_s=self.slack_s,
            max_keys=int(self.index_mib * _MIB / _KEY_BYTES),
        )
