"""Quotas of what requests wish for the cache: how long, how much and how important."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine_adapters.base import Retention
from gateway.limits.tenant_limits import TenantLimits

HEADER = b"x-kvgate-hints"


@dataclass(slots=True)
class _Pin:
    request: str
    session: int | None  # its hash: clients choose how long their names are
    tokens: int
    lasts: float  # seconds from the request's end on
    until: float | None = None  # None: the request runs


class Pins:
    """What each tenant has pinned at this gateway. Used from one event loop.

    Tokens of a prompt count from its first one on, and until the pin ends; those that two prompts have in common count
    twice, but for prompts of one session, of which the newest takes the place of the one before.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pins: dict[str, list[_Pin]] = {}  # by tenant

    def granted(
        self,
        wish: Retention | None,
        limits: TenantLimits,
        *,
        tenant: str,
        request: str,
        session: str | None,
        tokens: int,
    ) -> tuple[Retention | None, bytes | None]:
        """What is granted of a wish, and what the client is told where that is less: nothing fails."""
        if wish is None:
            return None, None
        told: list[str] = []
        granted = wish
        if granted.priority > limits.highest_priority:
            granted = replace(granted, priority=limits.highest_priority)
            told.append(f"priority={limits.highest_priority}")
        pin_s = granted.pin_s
        if limits.longest_pin_s is not None and pin_s > limits.longest_pin_s:
            pin_s = limits.longest_pin_s
        named = None if session is None else hash(session)
        if pin_s and not self._pin(limits, tenant, _Pin(request, named, tokens, pin_s)):
            pin_s = 0.0
        if pin_s != granted.pin_s:
            granted = replace(granted, pin_s=pin_s)
            told.append(f"pin_ttl={pin_s:g}")
        return (None if granted == Retention() else granted), "; ".join(told).encode() or None

    def ended(self, tenant: str, request: str) -> None:
        """The request has ended: its pin begins to run out."""
        if tenant not in self._pins:
            return
        now = self._clock()
        for pin in self._pins[tenant]:
            if pin.request == request and pin.until is None:
                pin.until = now + pin.lasts

    def tokens(self, tenant: str) -> int:
        """Pinned now."""
        return sum(pin.tokens for pin in self._live(tenant))

    def _pin(self, limits: TenantLimits, tenant: str, new: _Pin) -> bool:
        if limits.pinned_tokens is None:
            return True
        others = [pin for pin in self._live(tenant) if new.session is None or pin.session != new.session]
        if sum(pin.tokens for pin in others) + new.tokens > limits.pinned_tokens:
            return False
        self._pins[tenant] = [*others, new]
        return True

    def _live(self, tenant: str) -> list[_Pin]:
        now = self._clock()
        found = [pin for pin in self._pins.get(tenant, ()) if pin.until is None or pin.until > now]
        if found:
            self._pins[tenant] = found
        else:
            self._pins.pop(tenant, None)
        return found
