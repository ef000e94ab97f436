"""What an operator may set about the choice of replicas."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

PolicyName: TypeAlias = Literal["prefix", "least_load", "round_robin", "consistent_hash"]


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    """Of one engine's replicas."""

    policy: PolicyName = "prefix"
    capacity_tokens: int | None = None  # KV cache of one replica; None: learned
    prefill_tokens_per_s: float = 8000.0  # of one replica, until it is measured
    running_tokens: int = 16  # prompt tokens that delay a prefill as much as a running decode does
    recompute_price: float = 8.0  # of a token computed again: its own time, and what it pushes out of a cache
    session_share: float = 0.1  # of a prompt, that is taken to be where its session was, beside what is known
    session_s: float = 0.05  # that a session's replica may be later than others in any case
    bound: float = 1.25  # what waits at a replica over the mean of all, at most
    slack_s: float = 30.0  # of prefill, which may wait beyond that
    work_share: float = (
        0.05  # of what a replica computed lately beyond the mean, that counts as if it waited there
    )
    work_half_life_s: float = 600.0  # after which a token that was computed counts half
    sessions: int = 50_000  # that are remembered
    max_keys: int = 400_000  # of the prefix index, each some 250 bytes
