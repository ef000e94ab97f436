"""Which records are read behind which, so that those of a conversation's next turn come in one round trip."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

Stored = bytes | None

_KNOWN = 50_000  # keys whose follower is known: some 10 MB
_MOST = 256  # records in one round trip


@dataclass(slots=True)
class _Burst:
    """What one thread has read for one request."""

    read: dict[bytes, Stored] = field(default_factory=dict)
    last: bytes | None = None


class ReadAhead:
    """Reads through `fetch`, which gets many records at once. Safe to use from any thread.

    A conversation's turn reads the records of the turns before in the order in which the last turn did. What was read
    ahead is used within one `burst` only: as if all of it had been read at its first use.
    """

    def __init__(self, fetch: Callable[[Sequence[bytes]], Sequence[Stored]]) -> None:
        self._fetch = fetch
        self._next: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._here = threading.local()

    @contextmanager
    def burst(self) -> Iterator[None]:
        """Reads of one request, by one thread."""
        self._here.burst = _Burst()
        try:
            yield
        finally:
            self._here.burst = None

    def get(self, key: bytes) -> Stored:
        """The record; raises as `fetch` does."""
        burst: _Burst | None = getattr(self._here, "burst", None)
        if burst is None:
            return self._fetch([key])[0]
        self._follows(burst.last, key)
        burst.last = key
        if key not in burst.read:
            wanted = self._chain(key, burst.read)
            burst.read.update(zip(wanted, self._fetch(wanted), strict=True))
        return burst.read[key]

    def written(self, key: bytes) -> None:
        """What this thread has read of it counts no more."""
        burst: _Burst | None = getattr(self._here, "burst", None)
        if burst is not None:
            burst.read.pop(key, None)

    def _follows(self, before: bytes | None, key: bytes) -> None:
        if before is None or before == key:
            return
        with self._lock:
            self._next[before] = key
            self._next.move_to_end(before)
            if len(self._next) > _KNOWN:
                self._next.popitem(last=False)

    def _chain(self, key: bytes, read: dict[bytes, Stored]) -> list[bytes]:
        """`key` and those that were read behind it, each once."""
        found = {key: None}
        with self._lock:
            step = self._next.get(key)
            while step is not None and step not in found and len(found) < _MOST:
                found[step] = None
                step = self._next.get(step)
        return [each for each in found if each == key or each not in read]
