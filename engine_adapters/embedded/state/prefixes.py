"""What of a prompt a hybrid model can reuse: as far as both its KV and a snapshot of its state are there."""

from dataclasses import dataclass

from cache_core import Lease, PrefixCache
from engine_adapters.embedded.state.auxiliary import AuxiliaryState, Snapshot
from engine_adapters.embedded.state.snapshot_store import SnapshotStore, Tokens


@dataclass(frozen=True, slots=True)
class Found:
    """A lease on what can be reused, and what goes with it."""

    lease: Lease  # ends where the snapshot does: what lies behind is computed into blocks of its own
    snapshot: Snapshot | None  # None: nothing can be reused
    matched: int  # tokens whose KV the index has, whole blocks; the lease holds no more than that
    covered: int  # the same with that which lies below the device
    flushes: int  # of the store: a snapshot taken on the way is not kept if there were more since


class HybridPrefixes:
    """Prefix cache and snapshots together.

    Snapshots are taken where prompts end, and where a prompt leaves what the index knows: there the second prompt
    with a common beginning branches off, and a third one may start from it.
    """

    def __init__(self, cache: PrefixCache, store: SnapshotStore) -> None:
        self._cache = cache
        self.store = store

    @property
    def version(self) -> tuple[int, int]:
        """Changes whenever `reusable` may say something else."""
        return self._cache.version, self.store.version

    def reusable(self, tokens: Tokens, scope: str) -> int:
        """Leading tokens that `acquire` would find. Changes nothing."""
        return self.store.deepest(tokens, scope, self._matched(tokens, scope))

    def with_state(self, tokens: Tokens, scope: str) -> int:
        """Leading tokens that could be reused if all their KV were there, which may be on its way."""
        return self.store.deepest(tokens, scope, self._cache.reusable(len(tokens)))

    def acquire(self, tokens: Tokens, scope: str, covered: int = 0) -> Found:
        """Lease the deepest block boundary with both KV and snapshot, at most the last token but one.

        `covered`: tokens whose KV tiers below the device have, though it may not be worth to bring all of it up.
        """
        flushes = self.store.flushes
        matched = limit = self._matched(tokens, scope)
        while True:
            snapshot = self.store.find(tokens, scope, limit)
            length = 0 if snapshot is None else snapshot.length
            lease = self._cache.acquire(tokens[: length + 1], scope)
            if lease.matched == length:
                return Found(lease, snapshot, matched, max(matched, covered), flushes)
            limit = lease.matched  # some blocks went between the two looks
            lease.release()

    def boundaries(self, found: Found, prompt_length: int) -> list[int]:
        """Where snapshots are to be taken on the way through a prompt, in ascending order."""
        end = self._cache.reusable(prompt_length)
        return sorted({at for at in (min(found.covered, end), end) if at > found.lease.matched})

    def keep(self, tokens: Tokens, scope: str, state: AuxiliaryState, flushes: int) -> None:
        """Take a snapshot behind `tokens`; `flushes` is that of what was found for them."""
        self.store.keep(tokens, scope, state, flushes)

    def _matched(self, tokens: Tokens, scope: str) -> int:
        return min(self._cache.match(tokens, scope), self._cache.reusable(len(tokens)))
