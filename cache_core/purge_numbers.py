"""Which purge of each identity was the last one, within a bound."""

from collections import OrderedDict
from threading import Lock

MOST = 4096  # identities that are told apart; what was purged before those counts for everybody


class PurgeNumbers:
    """Whoever moves blocks asks for `now` first; what has a `last` above that then may not be kept. From any thread."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._last: OrderedDict[bytes, int] = OrderedDict()
        self._everybody = 0  # the last purge that counts for whoever is not named
        self._now = 0
        self._lock = Lock()

    @property
    def now(self) -> int:
        """The number of the last purge."""
        return self._now

    def last(self, identity: bytes) -> int:
        """The number of an identity's last purge, or a later one; 0: there was none."""
        with self._lock:
            return self._last.get(identity, self._everybody)

    def add(self, identity: bytes) -> None:
        """One more purge, of this identity."""
        with self._lock:
            self._now += 1
            self._last[identity] = self._now
            self._last.move_to_end(identity)
            if len(self._last) > self._most:
                _, self._everybody = self._last.popitem(last=False)

    def add_all(self) -> None:
        """One more purge, of every identity."""
        with self._lock:
            self._now += 1
            self._everybody = self._now
            self._last.clear()
