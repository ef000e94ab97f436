"""What may still pass where the counts of all processes are away: a part of what was left when they were there."""

from dataclasses import dataclass, replace

from gateway.limits.tenant_limits import TenantLimits


@dataclass(frozen=True, slots=True)
class Used:
    """Of one tenant: requests and tokens of the last minute, and requests that run."""

    requests: int = 0
    tokens: int = 0
    running: int = 0

    def __add__(self, other: "Used") -> "Used":
        return Used(self.requests + other.requests, self.tokens + other.tokens, self.running + other.running)

    def __sub__(self, other: "Used") -> "Used":
        """Less than nothing is nothing."""
        return Used(
            max(0, self.requests - other.requests),
            max(0, self.tokens - other.tokens),
            max(0, self.running - other.running),
        )

    def __or__(self, other: "Used") -> "Used":
        """The larger of each."""
        return Used(
            max(self.requests, other.requests),
            max(self.tokens, other.tokens),
            max(self.running, other.running),
        )


NOTHING = Used()


def left(limits: TenantLimits, used: Used, processes: int = 1) -> TenantLimits:
    """What each of so many processes may let pass beside what is used.

    Where nothing is used that is at least one of each, however many they are; else all of them together never pass more
    than is left, so that nobody has a limit anew.
    """

    def part(limit: int | None, of: int) -> int | None:
        if limit is None:
            return None
        return max(0, limit - of) // processes if of else max(1, limit // processes)

    return replace(
        limits,
        requests_per_minute=part(limits.requests_per_minute, used.requests),
        tokens_per_minute=part(limits.tokens_per_minute, used.tokens),
        concurrency=part(limits.concurrency, used.running),
    )
