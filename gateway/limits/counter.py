"""Who counts what tenants use: this process, or all gateways together."""

import math
import time
from collections.abc import Callable
from typing import Protocol

from gateway.limits.book import Book
from gateway.limits.tenant_limits import TenantLimits
from gateway.limits.verdict import Verdict


class Counter(Protocol):
    """Counts by tenant. Used from one event loop."""

    async def admit(self, tenant: str, limits: TenantLimits, request: str, tokens: int) -> Verdict:
        """Count a request that asks for `tokens`, where it may go on; never raises."""

    def settle(self, tenant: str, request: str, verdict: Verdict, tokens: int) -> None:
        """An admitted request has ended, with `tokens` more (or less) than were counted; never raises."""


class LocalCounter:
    """Exact for one process. `clock` gives seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.books: dict[str, Book] = {}
        self._tidied = -math.inf

    async def admit(self, tenant: str, limits: TenantLimits, request: str, tokens: int) -> Verdict:
        """As `Counter` says."""
        return self.judged(tenant, limits, request, tokens)

    def judged(self, tenant: str, limits: TenantLimits, request: str, tokens: int) -> Verdict:
        """The same, at once."""
        now, book = self._clock(), self.book(tenant)
        verdict = book.judge(limits, tokens, now)
        return verdict if verdict.over else book.enter(request, tokens, now)

    def entered(self, tenant: str, request: str, tokens: int) -> Verdict:
        """Count what was admitted elsewhere."""
        return self.book(tenant).enter(request, tokens, self._clock())

    def settle(self, tenant: str, request: str, verdict: Verdict, tokens: int) -> None:
        """As `Counter` says."""
        self.book(tenant).leave(request, verdict.second, tokens, self._clock())

    def book(self, tenant: str) -> Book:
        """A tenant's; those in which nothing counts are dropped now and then."""
        now = self._clock()
        if now - self._tidied > 60:
            self._tidied = now
            self.books = {name: book for name, book in self.books.items() if not book.idle(now)}
        found = self.books.get(tenant)
        if found is None:
            found = self.books[tenant] = Book()
        return found

    def told(self, tenant: str) -> tuple[int, int]:
        """Requests and tokens of the last minute."""
        now, book = self._clock(), self.book(tenant)
        return book.requests.used(now), book.tokens.used(now)
