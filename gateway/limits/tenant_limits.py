"""What one tenant may use."""

from dataclasses import dataclass
from typing import Literal

Priority = Literal[-1, 0, 1]


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """None: no limit of the tenant's own; what the gateway is bounded by counts for everyone."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None  # prompt and completion
    concurrency: int | None = None  # requests at once, waiting ones among them
    max_body_bytes: int | None = None
    max_prompts: int | None = 2048  # in one body of completions, embeddings or rerank; OpenAI takes as many
    reused_weight: float = 1.0  # 0 to 1; how much a reused prompt token counts
    weight: float = 1.0  # of two tenants that wait for a full engine, how much more tokens this one gets
    longest_pin_s: float | None = None  # of `kvgate.pin_ttl`; longer ones end then
    pinned_tokens: int | None = None  # pinned at once by `kvgate.pin_ttl`; 0: the hint does nothing
    highest_priority: Priority = 1  # of `kvgate.priority`; higher ones count as this

    @property
    def counted(self) -> bool:
        """Whether anything has to be counted before a request may go on."""
        return (
            self.requests_per_minute is not None
            or self.tokens_per_minute is not None
            or self.concurrency is not None
        )


NO_LIMITS = TenantLimits()
