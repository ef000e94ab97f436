"""How long requests want the snapshots they leave to stay, as with the KV before them: which one goes first."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from cache_core import RetentionHints
from cache_core.eviction.hints import RetentionLimits

Key = TypeVar("Key", bound=Hashable)

_FIRST, _ANY, _AFTER_ALL, _LAST = range(
    4
)  # order of leaving; within each, the least recently used goes first


@dataclass(frozen=True, slots=True)
class _Wish:
    scope: str
    pinned_until: float  # on the clock
    after_until: float  # goes after those without a wish, as long as that
    first_from: float  # goes before all others from then on


class Wishes(Generic[Key]):
    """Not locked. A scope, and all together, keep no more than their share; a wish for more is no wish.

    Args:
        room: snapshots there is room for.
    """

    def __init__(self, room: int, clock: Callable[[], float], limits: RetentionLimits | None = None) -> None:
        self._clock = clock
        self._limits = limits or RetentionLimits()
        self._scope_room = int(self._limits.scope_share * room)
        self._total_room = int(self._limits.total_share * room)
        self._wishes: dict[Key, _Wish] = {}

    def wish(self, key: Key, scope: str, hints: RetentionHints) -> None:
        """For one that is there; a later wish replaces an earlier one."""
        now = self._clock()
        self._wishes.pop(key, None)
        pinned_until = now + min(hints.pin_s, self._limits.longest_pin_s)
        after_until = now + self._limits.priority_s if hints.priority == 1 else now
        first_from = float("inf") if hints.ttl_s is None else now + hints.ttl_s
        if hints.priority == -1:
            first_from = now
        if max(pinned_until, after_until) > now and not self._fits(scope, now):
            pinned_until = after_until = now
        self._wishes[key] = _Wish(scope, pinned_until, after_until, first_from)

    def used(self, key: Key) -> None:
        """It was used again: it has no time after which it goes before others."""
        wish = self._wishes.get(key)
        if wish is not None:
            self._wishes[key] = _Wish(wish.scope, wish.pinned_until, wish.after_until, float("inf"))

    def forget(self, key: Key) -> None:
        """It is gone."""
        self._wishes.pop(key, None)

    def victim(self, keys: Iterable[Key]) -> Key:
        """Which of these, given least recently used first, makes room. There is always one: who needs room gets it."""
        if not self._wishes:
            return next(iter(keys))
        now = self._clock()
        return min(keys, key=lambda key: self._rank(key, now))

    def _rank(self, key: Key, now: float) -> int:
        wish = self._wishes.get(key)
        if wish is None:
            return _ANY
        if wish.pinned_until > now:
            return _LAST
        if wish.first_from <= now:
            return _FIRST
        return _AFTER_ALL if wish.after_until > now else _ANY

    def _fits(self, scope: str, now: float) -> bool:
        kept = [wish for wish in self._wishes.values() if max(wish.pinned_until, wish.after_until) > now]
        mine = sum(wish.scope == scope for wish in kept)
        return mine < self._scope_room and len(kept) < self._total_room
