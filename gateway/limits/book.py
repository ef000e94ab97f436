"""What one tenant used in the last minute through this gateway."""

from dataclasses import dataclass, field, replace

from gateway.limits.tenant_limits import TenantLimits
from gateway.limits.verdict import Kind, Verdict
from gateway.limits.window import Window


@dataclass(slots=True)
class Book:
    """Requests, tokens, and which requests run. `owed_*` passed while the shared state was away."""

    requests: Window = field(default_factory=Window)
    tokens: Window = field(default_factory=Window)
    running: set[str] = field(default_factory=set)
    owed_requests: int = 0
    owed_tokens: int = 0

    def judge(self, limits: TenantLimits, tokens: int, now: float) -> Verdict:
        """Whether one more request may go on, of `tokens`; nothing is counted."""
        over: list[Kind] = []
        wait = 0.0
        asked = (
            ("requests", self.requests, limits.requests_per_minute, 1),
            ("tokens", self.tokens, limits.tokens_per_minute, tokens),
        )
        for kind, window, limit, wanted in asked:
            missing = 0 if limit is None else window.used(now) + wanted - limit
            if missing > 0:
                over.append(kind)  # type: ignore[arg-type]
                wait = max(wait, window.wait(now, missing))
        if limits.concurrency is not None and len(self.running) >= limits.concurrency:
            over.append("concurrency")
        return self._verdict(tuple(over), wait, now)

    def enter(self, request: str, tokens: int, now: float) -> Verdict:
        """Count one request."""
        self.requests.used(now)
        self.tokens.used(now)
        self.requests.add(now, 1)
        self.tokens.add(now, tokens)
        self.running.add(request)
        return self._verdict((), 0.0, now)

    def leave(self, request: str, second: int, tokens: int, now: float) -> None:
        """A request has ended, with `tokens` more (or less) than were counted in `second`."""
        self.running.discard(request)
        if tokens < 0:
            self.tokens.give_back(second, -tokens)
        elif tokens > 0:
            self.tokens.used(now)
            self.tokens.add(now, tokens)

    def owe(self, requests: int, tokens: int) -> None:
        """What the shared state is to be told when it is back. Less than nothing is not told."""
        self.owed_requests += requests
        self.owed_tokens = max(0, self.owed_tokens + tokens)

    def take_owed(self) -> tuple[int, int]:
        """Requests and tokens, which are owed no more."""
        owed = self.owed_requests, self.owed_tokens
        self.owed_requests = self.owed_tokens = 0
        return owed

    def idle(self, now: float) -> bool:
        """Whether nothing here counts."""
        owed = self.owed_requests or self.owed_tokens
        return not owed and not self.running and not self.requests.used(now) and not self.tokens.used(now)

    def _verdict(self, over: tuple[Kind, ...], wait: float, now: float) -> Verdict:
        return Verdict(
            over,
            self.requests.used(now),
            self.tokens.used(now),
            self.requests.empty_in(now),
            self.tokens.empty_in(now),
            wait,
            int(now),
        )


def share(limits: TenantLimits, gateways: int) -> TenantLimits:
    """What one of several gateways lets pass alone: at least one of each."""
    if gateways <= 1:
        return limits

    def part(limit: int | None) -> int | None:
        return None if limit is None else max(1, limit // gateways)

    return replace(
        limits,
        requests_per_minute=part(limits.requests_per_minute),
        tokens_per_minute=part(limits.tokens_per_minute),
        concurrency=part(limits.concurrency),
    )
