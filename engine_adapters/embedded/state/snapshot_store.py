"""Snapshots by the tokens they stand behind, within a bound of device memory."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from cache_core import RetentionHints, RetentionLimits
from engine_adapters.embedded.state.auxiliary import AuxiliaryState, Snapshot
from engine_adapters.embedded.state.wishes import Wishes

Tokens = NDArray[np.int32]
_Key = tuple[str, int, bytes]  # scope, tokens, digest of those tokens
Evicted = Callable[[Tokens, str, Snapshot], None]


@dataclass(frozen=True, slots=True)
class _Kept:
    tokens: Tokens  # a copy
    snapshot: Snapshot


class SnapshotStore:
    """Least recently used goes first, unless a request wished otherwise. Any thread may call.

    Args:
        max_bytes: all snapshots together; where one alone is larger, none is kept.
        row_bytes: of one snapshot.
    """

    def __init__(
        self,
        max_bytes: int,
        row_bytes: int,
        clock: Callable[[], float] = time.monotonic,
        limits: RetentionLimits | None = None,
    ) -> None:
        self._room = max_bytes // max(row_bytes, 1)
        self._row_bytes = row_bytes
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._lengths: dict[str, dict[int, int]] = {}  # scope -> length -> how many snapshots have it
        self._wishes: Wishes[_Key] = Wishes(self._room, clock, limits)
        self._lock = Lock()
        self.version = 0  # grows whenever the set of snapshots changes
        self.evicted = 0
        self.flushes = 0  # grows whenever some are forgotten on purpose
        self.on_evict: Evicted | None = None  # told which one makes room, under the lock: it must be quick

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        """Device memory held."""
        return len(self._kept) * self._row_bytes

    def deepest(self, tokens: Tokens, scope: str, limit: int) -> int:
        """Length of the longest snapshot that is a prefix of `tokens[:limit]`, 0: there is none. Changes nothing."""
        with self._lock:
            key = self._deepest(tokens, scope, limit)
            return 0 if key is None else key[1]

    def find(self, tokens: Tokens, scope: str, limit: int) -> Snapshot | None:
        """The longest snapshot that is a prefix of `tokens[:limit]`; it counts as used."""
        with self._lock:
            key = self._deepest(tokens, scope, limit)
            if key is None:
                return None
            self._kept.move_to_end(key)
            self._wishes.used(key)
            return self._kept[key].snapshot

    def retain(self, tokens: Tokens, scope: str, hints: RetentionHints) -> None:
        """The longest snapshot that is a prefix of `tokens` should stay as `hints` say."""
        with self._lock:
            key = self._deepest(tokens, scope, len(tokens))
            if key is not None:
                self._wishes.wish(key, scope, hints)

    def along(self, tokens: Tokens, scope: str) -> list[Snapshot]:
        """Every snapshot that is a prefix of `tokens`, shortest first. Changes nothing."""
        with self._lock:
            keys = self._prefixes(tokens, scope, len(tokens))
            return [self._kept[key].snapshot for key in keys if key in self._kept]

    def keep(self, tokens: Tokens, scope: str, state: AuxiliaryState, flushes: int | None = None) -> None:
        """Keep a copy of `state`, which stands behind just these `tokens`; one that is there already stays.

        Not if some were forgotten since `flushes`, when what it comes from was found.
        """
        self._keep(tokens, scope, state.length, state.snapshot, flushes)

    def put(self, tokens: Tokens, scope: str, snapshot: Snapshot, flushes: int) -> None:
        """As `keep`, for a snapshot that came from elsewhere and is not copied."""
        self._keep(tokens, scope, snapshot.length, lambda: snapshot, flushes)

    def _keep(
        self, tokens: Tokens, scope: str, length: int, take: Callable[[], Snapshot], flushes: int | None
    ) -> None:
        assert length == len(tokens), "a snapshot stands behind the tokens it is kept for"
        key = (scope, length, hashlib.blake2b(_bytes(tokens)).digest())
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return
            if self._room == 0 or flushes not in (None, self.flushes):
                return
            while len(self._kept) >= self._room:
                self._evict(self._wishes.victim(self._kept))
            self._kept[key] = _Kept(tokens.copy(), take())
            lengths = self._lengths.setdefault(scope, {})
            lengths[length] = lengths.get(length, 0) + 1
            self.version += 1

    def flush(self, scope: str | None = None) -> int:
        """Forget the snapshots of one scope, or all; says how many."""
        with self._lock:
            going = [key for key in self._kept if scope is None or key[0] == scope]
            for key in going:
                self._forget(key)
            self.flushes += 1
            return len(going)

    def _deepest(self, tokens: Tokens, scope: str, limit: int) -> _Key | None:
        found = None
        for key in self._prefixes(tokens, scope, limit):
            if key in self._kept:
                found = key
        return found

    def _prefixes(self, tokens: Tokens, scope: str, limit: int) -> Iterator[_Key]:
        """Keys of the prefixes that have the length of some snapshot; the tokens are read once."""
        digest, done = hashlib.blake2b(), 0
        for length in sorted(self._lengths.get(scope, ())):
            if length > min(limit, len(tokens)):
                return
            digest.update(_bytes(tokens[done:length]))
            done = length
            yield scope, length, digest.copy().digest()

    def _evict(self, key: _Key) -> None:
        if self.on_evict is not None:
            self.on_evict(self._kept[key].tokens, key[0], self._kept[key].snapshot)
        self._forget(key)
        self.evicted += 1

    def _forget(self, key: _Key) -> None:
        del self._kept[key]
        self._wishes.forget(key)
        scope, length, _ = key
        lengths = self._lengths[scope]
        lengths[length] -= 1
        if not lengths[length]:
            del lengths[length]
        if not lengths:
            del self._lengths[scope]
        self.version += 1


def _bytes(tokens: Tokens) -> memoryview:
    return np.ascontiguousarray(tokens, dtype=np.int32).data
