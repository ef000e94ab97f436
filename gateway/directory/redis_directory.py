"""The directory in Redis or Valkey. Where that is away, this gateway goes on with what it knows itself."""

import asyncio
import hashlib
import struct
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

from cache_core.prefix_directory import PrefixOwner
from gateway.directory.options import DirectoryOptions
from gateway.shared_state.errors import AwayError, SharedStateError
from gateway.shared_state.pipe import Argument
from gateway.shared_state.scripts import Script
from gateway.shared_state.shared_state import SharedState

_PACKAGE: Final = "gateway.directory"
_OWNERS = Script.packaged(_PACKAGE, "owners.lua")
_HOLDS = Script.packaged(_PACKAGE, "holds.lua")
_CLEARED = Script.packaged(_PACKAGE, "cleared.lua")
_LONGEST = 4096  # keys of a chain; what is behind them is not told
_AT_ONCE = 512  # keys in one call
_REMEMBERED = 200_000  # keys that were told lately and need not be told again


class RedisDirectory:
    """As `PrefixDirectory` says, for one engine.

    Attributes:
        lookups: so far, by outcome: found, nothing, late, away, refused.
        told: keys that were written.
    """

    def __init__(
        self,
        state: SharedState,
        engine: str,
        options: DirectoryOptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lookups: Counter[str] = Counter()
        self.told = 0
        self._state = state
        self._engine = engine
        self._options = options
        self._clock = clock
        self._epochs_at = state.options.key("dir", engine, "epoch", "")
        self._epochs: dict[str, bytes] = {}  # by owner, as they were when it was told of last
        self._written: OrderedDict[tuple[str, str, int], float] = OrderedDict()
        self._anew = False
        state.circuit.on_return(self._returned)

    async def owners(self, scope: str, keys: Sequence[int], known: int = 0) -> Sequence[PrefixOwner]:
        """Within `budget_s`; empty where that is over."""
        asked = keys[:_LONGEST]
        if known >= len(asked):
            return []
        bases = [self._base(scope), self._epochs_at]
        try:
            call = self._state.pipe.begin(_OWNERS, bases, [_packed(asked), known, self._options.owners])
        except AwayError:
            self.lookups["away"] += 1
            return []
        call.add_done_callback(_looked_at)
        await asyncio.wait([call], timeout=self._options.budget_s)
        return self._read(call, len(asked))

    def holds(self, scope: str, keys: Sequence[int], owner: str, tier: str = "device") -> None:
        """Only what was not told in the last half of its time."""
        if self._anew:
            self._anew = False
            self._written.clear()
        now = self._clock()
        new = [key for key in keys[:_LONGEST] if self._due((scope, owner, key), now)]
        ttl_ms = int(self._options.ttl_s * 1000)
        for at in range(0, len(new), _AT_ONCE):
            part = new[at : at + _AT_ONCE]
            args: list[Argument] = [_packed(part), owner, tier, ttl_ms, self._options.owners]
            try:
                call = self._state.pipe.begin(_HOLDS, [self._base(scope), self._epochs_at], args)
            except AwayError:
                self._written.clear()
                return
            call.add_done_callback(lambda done: self._told(owner, done))
            self.told += len(part)

    def cleared(self, owner: str) -> None:
        """Its epoch ends, unless another gateway has ended it already."""
        epoch = self._epochs.pop(owner, None)
        for key in [key for key in self._written if key[1] == owner]:
            del self._written[key]
        if epoch is not None:
            args: list[Argument] = [epoch, int(2 * self._options.ttl_s * 1000)]
            self._state.pipe.post(_CLEARED, [self._epochs_at + owner], args)

    def _due(self, key: tuple[str, str, int], now: float) -> bool:
        at = self._written.get(key)
        if at is not None and now - at < self._options.ttl_s / 2:
            return False
        self._written[key] = now
        self._written.move_to_end(key)
        if len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)
        return True

    def _told(self, owner: str, done: "asyncio.Future[Any]") -> None:
        if done.cancelled() or done.exception() is not None:
            self._written.clear()  # it is told again
        elif isinstance(done.result(), bytes):
            self._epochs[owner] = done.result()

    def _read(self, call: "asyncio.Future[Any]", longest: int) -> Sequence[PrefixOwner]:
        if not call.done():
            self.lookups["late"] += 1
            return []
        try:
            found = [
                PrefixOwner(name.decode(), min(int(depth), longest), tier.decode(), int(heat))
                for name, depth, tier, heat in call.result()
            ]
        except AwayError:
            self.lookups["away"] += 1
        except (SharedStateError, ValueError, TypeError, AttributeError):
            self.lookups["refused"] += 1  # what stands there is not ours
        else:
            self.lookups["found" if found else "nothing"] += 1
            return found
        return []

    def _base(self, scope: str) -> str:
        return self._state.options.key("dir", self._engine, scope_name(scope), "")

    def _returned(self) -> None:
        self._anew = True  # it may have lost everything; this comes from another thread


def scope_name(scope: str) -> str:
    """What stands for a scope in names of keys; nobody finds the scope from it."""
    return hashlib.sha256(b"kvgate directory\0" + scope.encode()).hexdigest()[:24]


def forget_scopes(state: SharedState, scopes: Sequence[str]) -> int:
    """Drop all that is told of them, of all engines; keys dropped. Takes as long as a look at all keys of the server.

    Raises SharedStateError.
    """
    dropped = 0
    for scope in scopes:
        pattern = state.options.key("dir", "*", scope_name(scope), "*").encode()
        for found in state.threaded.keys(pattern):
            dropped += int(state.threaded.execute("UNLINK", *found))
    return dropped


def _packed(keys: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(keys)}Q", *keys)


def _looked_at(done: "asyncio.Future[Any]") -> None:
    """Nobody may wait for it any more."""
    if not done.cancelled():
        done.exception()
