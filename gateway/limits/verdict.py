"""What became of one request at its tenant's limits, and how its client is told."""

import math
from dataclasses import dataclass
from typing import Literal

from gateway.errors import ApiError
from gateway.limits.tenant_limits import TenantLimits

Kind = Literal["requests", "tokens", "concurrency"]

_SLOT_WAIT_S = 1.0  # nobody knows when a request will end

_REQUESTS, _TOKENS = (
    [f"x-ratelimit-{what}-{kind}".encode() for what in ("limit", "remaining", "reset")]
    for kind in ("requests", "tokens")
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of the tenant's last minute, this request among them where it may go on."""

    over: tuple[Kind, ...]  # empty: it may go on
    requests: int
    tokens: int
    requests_reset_s: float  # until no request counts any more
    tokens_reset_s: float
    wait_s: float  # until there is room; 0 where it may go on
    second: int = 0  # that it counts in

    def headers(self, limits: TenantLimits) -> list[tuple[bytes, bytes]]:
        """As the OpenAI API has them; only for limits that there are."""
        told: list[tuple[bytes, bytes]] = []
        if limits.requests_per_minute is not None:
            told += _told(_REQUESTS, limits.requests_per_minute, self.requests, self.requests_reset_s)
        if limits.tokens_per_minute is not None:
            told += _told(_TOKENS, limits.tokens_per_minute, self.tokens, self.tokens_reset_s)
        return told

    def error(self, limits: TenantLimits, asked: int) -> ApiError:
        """HTTP 429; `asked`: tokens that the request was thought to take."""
        kind = self.over[0]
        if kind == "tokens" and asked > (limits.tokens_per_minute or 0):
            return _never(limits.tokens_per_minute or 0, asked)
        wait = math.ceil(max(self.wait_s, _SLOT_WAIT_S if kind == "concurrency" else 0.0))
        said = {
            "requests": f"{self.requests} of {limits.requests_per_minute} requests a minute are used",
            "tokens": f"{self.tokens} of {limits.tokens_per_minute} tokens a minute are used, and this request "
            f"asks for about {asked}",
            "concurrency": f"{limits.concurrency} requests of this key's tenant run already, as many as may",
        }[kind]
        again = "Try again when one has ended." if kind == "concurrency" else f"Try again in {wait} s."
        return _refusal(kind, f"Rate limit reached: {said}. {again}", {"retry-after": str(wait)})


def _told(names: list[bytes], limit: int, used: int, reset_s: float) -> list[tuple[bytes, bytes]]:
    left = limit - used if used < limit else 0
    return list(zip(names, (b"%d" % limit, b"%d" % left, duration(reset_s).encode()), strict=True))


def _never(limit: int, asked: int) -> ApiError:
    message = (
        f"Request too large: it asks for about {asked} tokens, prompt and completion together, and the limit is "
        f"{limit} a minute. Send a shorter prompt, or ask for fewer tokens with max_tokens."
    )
    return _refusal("tokens", message, {"x-should-retry": "false"})  # which the SDKs obey


def _refusal(kind: Kind, message: str, headers: dict[str, str]) -> ApiError:
    type_ = "requests" if kind == "concurrency" else kind
    return ApiError(429, message, type_=type_, code="rate_limit_exceeded", headers=headers)


def duration(seconds: float) -> str:
    """`6m0s`, `1.5s`, `20ms`, `0s`."""
    thousandths = math.ceil(seconds * 1000)
    if thousandths < 1000:
        return f"{thousandths}ms" if thousandths > 0 else "0s"
    minutes, rest = divmod(thousandths, 60_000)
    return (f"{minutes}m" if minutes else "") + f"{rest / 1000:g}s"
