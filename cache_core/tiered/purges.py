"""Keeps blocks of a purged scope from slipping into a tier that has forgotten them already."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from cache_core.metrics import TierName
from cache_core.purge_numbers import PurgeNumbers


class Purges:
    """Purges of each scope (by its identity's digest) by number, and what is being stored for it.

    Whoever moves a scope's blocks asks for the number first. What was pinned or leased under an older number is not
    stored any more.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._numbers = PurgeNumbers()
        self._under_way: Counter[bytes] = Counter()
        self._all_under_way = 0
        self._storing: Counter[tuple[bytes, TierName]] = Counter()

    @property
    def idle(self) -> bool:
        """Whether no purge goes on."""
        return not self._under_way and not self._all_under_way

    def number(self, identity: bytes) -> int | None:
        """Of its last purge; None: one goes on now, so nothing of it should be touched."""
        with self._changed:
            under_way = self._all_under_way or self._under_way[identity]
            return None if under_way else self._numbers.last(identity)

    @contextmanager
    def storing(self, identity: bytes, number: int, tier: TierName) -> Iterator[bool]:
        """Around storing blocks in a tier that were found under that number; whether they may be.

        A purge of that tier waits for the end.
        """
        key = identity, tier
        with self._changed:
            allowed = not self._all_under_way and self._numbers.last(identity) == number
            self._storing[key] += allowed
        try:
            yield allowed
        finally:
            with self._changed:
                self._storing[key] -= allowed
                if not self._storing[key]:
                    del self._storing[key]
                self._changed.notify_all()

    def begin(self, identity: bytes) -> None:
        """A purge begins: nothing older is stored from here on, and nothing looked for until `end`."""
        with self._changed:
            self._numbers.add(identity)
            self._under_way[identity] += 1

    @contextmanager
    def everything(self) -> Iterator[None]:
        """Around a change after which nothing that was found before may be stored or loaded, whatever its scope.

        What is being stored goes on, as what it was.
        """
        with self._changed:
            self._numbers.add_all()
            self._all_under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._all_under_way -= 1

    def wait_stored(self, identity: bytes, tier: TierName) -> None:
        """Wait until what was being stored in a tier before `begin` is stored."""
        with self._changed:
            while self._storing[identity, tier]:
                self._changed.wait()

    def end(self, identity: bytes) -> None:
        """Every tier has forgotten it."""
        with self._changed:
            self._under_way[identity] -= 1
            if not self._under_way[identity]:
                del self._under_way[identity]
