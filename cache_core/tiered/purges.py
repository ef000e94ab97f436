"""Keeps blocks of a purged scope from slipping into a tier that has forgotten them already."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class Purges:
    """Purges of each scope (by its identity's digest) by number, and what is being stored for it.

    Whoever moves a scope's blocks asks for the number first. What was pinned or leased under an older number is not
    stored any more.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._numbers: Counter[bytes] = Counter()
        self._under_way: Counter[bytes] = Counter()
        self._storing: Counter[bytes] = Counter()

    def number(self, identity: bytes) -> int | None:
        """Of its last purge; None: one goes on now, so nothing of it should be touched."""
        with self._changed:
            return None if self._under_way[identity] else self._numbers[identity]

    @contextmanager
    def storing(self, identity: bytes, number: int) -> Iterator[bool]:
        """Around storing blocks that were found under that number; whether they may be. A purge waits for the end."""
        with self._changed:
            allowed = self._numbers[identity] == number
            self._storing[identity] += allowed
        try:
            yield allowed
        finally:
            with self._changed:
                self._storing[identity] -= allowed
                self._changed.notify_all()

    @contextmanager
    def purging(self, identity: bytes) -> Iterator[None]:
        """Around a purge: nothing older is stored from here on."""
        with self._changed:
            self._numbers[identity] += 1
            self._under_way[identity] += 1
            while self._storing[identity]:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                self._under_way[identity] -= 1
