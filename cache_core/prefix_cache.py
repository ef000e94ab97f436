"""The facade: one prefix cache over a block pool, a prefix index and an eviction policy."""

import time
from collections.abc import Callable, Mapping
from threading import Lock

import numpy as np

from cache_core.block_pool import BlockPool, Blocks
from cache_core.compaction import Compactor
from cache_core.errors import LeaseError, OutOfBlocksError
from cache_core.eviction import (
    DEFAULT_POLICY,
    EvictionPolicy,
    MeasuredCosts,
    RetentionHints,
    RetentionLimits,
    policy_named,
)
from cache_core.eviction.policy import Lookup
from cache_core.eviction.retention import Retention
from cache_core.eviction.shares import Shares
from cache_core.evictor import Evictor, Spill
from cache_core.in_flight import InFlight, InFlightTable
from cache_core.integrity import check
from cache_core.lease import Lease
from cache_core.metrics import CacheObserver, NullObserver, TierName
from cache_core.prefix_index import PrefixIndex
from cache_core.residency import BITS, Bits, Kept, bits_of, noted
from cache_core.stats import CacheStats, Counters
from cache_core.tick_times import TickTimes
from cache_core.tokens import Tokens, as_tokens

CopyBlocks = Callable[
    [Blocks, Blocks], None
]  # (from, to): copies whole blocks' bytes, called under the cache's lock


class PrefixCache:
    """Shares the KV of common prefixes between requests. Every method may be called from any thread.

    Token arguments are int32 arrays [n]. `copy_blocks` copies the bytes when a fork needs a partial block of
    its own, or blocks move together; None where there are no bytes. It is called under the cache's lock and must
    not call the cache.
    `policy` ranks what goes first, within `limits` for what one scope holds and what hints of requests may keep;
    `clock` gives seconds.
    `observer` is told under the cache's lock what is evicted, and what a bigger device would still have had.
    """

    def __init__(
        self,
        pool: BlockPool,
        policy: str | EvictionPolicy = DEFAULT_POLICY,
        copy_blocks: CopyBlocks | None = None,
        limits: RetentionLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        observer: CacheObserver | None = None,
    ) -> None:
        self.block_size = pool.block_size
        self._pool = pool
        ranking = policy_named(policy) if isinstance(policy, str) else policy
        limits = limits or RetentionLimits()
        self._shares = Shares(int(limits.scope_share * pool.num_blocks))
        self._policy = Retention(ranking, limits, clock, self._shares)
        self._policy.bind(pool.num_blocks, pool.block_size)
        self._copy_blocks = copy_blocks
        self._index = PrefixIndex(pool.block_size)
        self._observer = observer or NullObserver()
        self._compactor = Compactor(pool, self._index, self._copy, self._observer)
        self._in_flight = InFlightTable(pool.block_size)
        self._leases: dict[Lease, None] = {}
        self._lock = Lock()
        self._now = 0  # logical clock: one tick a release
        self._ticks = TickTimes(clock)
        self._accesses = 0  # paths the policy was told of
        self._version = 0
        self._counters = Counters()
        self._evictor = Evictor(
            pool, self._index, self._policy, self._shares, self._ticks, self._observer, self._count_evicted
        )

    @property
    def version(self) -> int:
        """Grows whenever the set of ready blocks changes; what `match` said holds as long as it does not."""
        return self._version

    def reusable(self, n: int) -> int:
        """Tokens of an `n`-token prompt that may be reused: whole blocks, and never the last token."""
        return max(n - 1, 0) // self.block_size * self.block_size

    def match(self, tokens: Tokens, scope: str = "default") -> int:
        """Leading tokens that are ready, in whole blocks; `acquire` takes at most `reusable(n)` of them.

        Changes nothing, heat included.
        """
        tokens = as_tokens(tokens)
        with self._lock:
            return self._index.match(scope, tokens)

    def acquire(self, tokens: Tokens, scope: str = "default", counted: bool = True) -> Lease:
        """Pin the longest ready prefix of a prompt, at most `reusable(n)` tokens, and announce the rest.

        `tokens` are copied. Never needs a free block. Not `counted`: it is no request's, so `stats` leaves it out.
        """
        tokens = as_tokens(tokens)
        with self._lock:
            lease = self._pinned(tokens, scope, self.reusable(len(tokens)))
            lease.announced = self._in_flight.announce(lease)
            if counted:
                self._counters.acquired(len(tokens), lease.matched)
            return lease

    def hold(self, tokens: Tokens, scope: str = "default") -> Lease:
        """Pin what is ready of `tokens`, in whole blocks, so that it can be copied: announced and counted nowhere."""
        tokens = as_tokens(tokens)
        with self._lock:
            return self._pinned(tokens, scope, len(tokens))

    def _pinned(self, tokens: Tokens, scope: str, limit: int) -> Lease:
        root = self._index.root(scope)
        node, matched = self._index.descend(root, tokens[:limit])
        table = self._index.pinned_table(node, -(-len(tokens) // self.block_size))
        lease = Lease(self, root, node, tokens, table, matched // self.block_size, matched)
        lease.accesses = self._accesses
        self._leases[lease] = None
        return lease

    def computing(
        self, tokens: Tokens, scope: str = "default", exclude: Lease | None = None
    ) -> InFlight | None:
        """The live lease that is about to compute most of this prefix beyond what is ready; None: none is.

        A request that finds one waits, holding no lease, until `owner.ready >= shared` or `owner.announced`
        is false (it is done, released or abandoned); then it acquires, and goes on from what is ready.
        """
        tokens = as_tokens(tokens)
        with self._lock:
            limit = self.reusable(len(tokens))
            if not self._in_flight.may_share(tokens, scope):
                return None
            ready = self._index.match(scope, tokens[:limit])
            return self._in_flight.best(tokens, scope, ready, limit, exclude)

    def available(self) -> int:
        """Blocks that could be allocated now: free or evictable."""
        with self._lock:
            return self._available()

    def lies_over(self, kept: Mapping[TierName, Kept]) -> None:
        """These tiers are below: whether each still has what it had at a moment. Asked under the cache's lock."""
        self._evictor.kept = dict(kept)

    def found_below(
        self, tokens: Tokens, scope: str, tier: TierName, moment: int, first: int = 0, last: int | None = None
    ) -> None:
        """Blocks `first` .. `last` (None: the last one) of `tokens` are in a tier below, at that moment of its clock.

        Only of ready blocks this is remembered, with their node.
        """
        tokens = as_tokens(tokens)
        last = len(tokens) // self.block_size if last is None else last
        kept = self._evictor.kept.get(tier)
        if kept is None:
            return
        with self._lock:
            start = 0
            for node, blocks in self._index.path(scope, tokens):
                begin, end = max(first - start, 0), min(last - start, blocks)
                if begin < end:
                    node.resident = noted(node.resident, tier, begin, end, moment, kept)
                    if node.evictable:
                        self._policy.offer(node)  # it may be worth less now
                start += blocks

    def residency(self, tokens: Tokens, scope: str = "default") -> Bits:
        """Where the ready blocks of `tokens` are, as far as is known: `residency.BITS`, uint8 [ready blocks].

        Tiers are not asked, but what one may have dropped since does not count.
        """
        tokens = as_tokens(tokens)
        with self._lock:
            path = self._index.path(scope, tokens)
            parts = [
                bits_of(node.resident, node.num_blocks, self._evictor.kept)[:blocks] for node, blocks in path
            ]
        return np.concatenate([np.empty(0, dtype=np.uint8), *parts]) | np.uint8(BITS["device"])

    def measured(self, costs: MeasuredCosts) -> None:
        """What it takes to have a block again; the eviction policy may want to know."""
        with self._lock:
            self._policy.measured(costs, self._evictor.lies_in)

    def spill_to(self, spill: Spill | None) -> None:
        """Before blocks are evicted, show them to `spill`, which may copy their bytes; None: to nobody.

        It gets the whole path, so that parents can be copied before their children. It is called under the cache's
        lock, on whoever's thread needs the room: it must be quick and not call the cache.
        """
        self._evictor.spill = spill

    def evict(self, n: int, spill: Spill | None = None) -> int:
        """Free up to `n` cached blocks that no lease pins, in the policy's order; says how many.

        They are shown to `spill` first, or, without one, to that of `spill_to`.
        """
        with self._lock:
            return self._evictor.evict(n, spill)

    def prune(self) -> int:
        """For idle time: forget branches that were not used within their time to live; says how many blocks.

        Down to where somebody else's prefix ends. They are copied nowhere.
        """
        with self._lock:
            return self._evictor.prune()

    def compact(self, limit: int = 8) -> bool:
        """For idle time: move up to `limit` blocks that no lease pins, so that prefixes and free room lie together.

        True while there is more to do: call it again as long as nobody waits. Nothing that can be matched changes.
        """
        with self._lock:
            more = self._compactor.step(limit)
            fragmentation = self._pool.fragmentation()
        self._observer.fragmentation("device", fragmentation)
        return more

    def flush(self, scope: str | None = None) -> int:
        """Forget every cached block that no lease pins, of one scope or all; says how many."""
        with self._lock:
            return self._evictor.forget(self._index.leaves(scope))

    def purge(self, scope: str) -> int:
        """Forget a scope for good; says how many blocks were freed at once.

        What leases pin is never matched again and is freed when they are released.
        """
        with self._lock:
            return self._purge(scope)

    def purge_all(self) -> int:
        """The same for every scope."""
        with self._lock:
            return sum(self._purge(root.scope) for root in self._index.roots())

    def _purge(self, scope: str) -> int:
        freed = self._evictor.forget(self._index.leaves(scope))
        root = self._index.detach(scope)
        if root is not None:
            self._shares.forget(root)
        self._policy.purged(scope)
        self._compactor.forget()
        self._in_flight.withdraw_scope(scope)
        self._version += 1
        return freed

    def stats(self) -> CacheStats:
        """Where the blocks are now, and what happened since the start."""
        with self._lock:
            self._counters.compacted = self._compactor.moved
            stats = self._counters.snapshot(self._pool, self._index, self._policy, len(self._leases))
        self._observer.fragmentation("device", stats.fragmentation)
        return stats

    def check_integrity(self) -> None:
        """Prove that every block is in exactly one place and every count is right. Slow; for tests.

        Raises:
            IntegrityError: says what is wrong.
        """
        with self._lock:
            check(self._pool, self._index, list(self._leases))

    # What a lease does, here because it happens under the cache's lock.

    def _extend(self, lease: Lease, tokens: Tokens) -> None:
        tokens = as_tokens(tokens)
        with self._lock:
            lease.require_live()
            needed = -(-(lease.length + len(tokens)) // self.block_size) - lease.num_blocks
            if needed > 0:
                lease.put_blocks(self._allocate(needed, lease.last_block()))
            if not lease.put_tokens(tokens):
                self._withdraw(lease)

    def _commit(self, lease: Lease, upto: int | None) -> None:
        with self._lock:
            lease.require_live()
            lease.used = True
            ready = lease.length if upto is None else upto
            if ready > lease.length:
                raise LeaseError(f"{ready} tokens cannot be ready, the lease covers {lease.length}")
            if ready <= lease.ready:
                return
            whole = ready // self.block_size
            if whole > lease.indexed:
                self._index_blocks(lease, whole)
            lease.ready = ready
            if lease.announced and lease.indexed >= lease.wanted_length // self.block_size:
                self._withdraw(lease)

    def _index_blocks(self, lease: Lease, whole: int) -> None:
        """Move the own blocks up to block `whole` into the index, or take over those that are there."""
        tokens = lease.covered_tokens(lease.indexed, whole)
        own = lease.own_blocks(whole)
        node, matched, found = lease.node, 0, 0
        if self._index.leads_on(node, tokens):
            node, matched = self._index.descend(node, tokens)
            found = matched // self.block_size
            duplicates = own[:found].copy()
            own[:found] = self._index.path_blocks(node, above=lease.node)
            self._pool.release(duplicates)
            self._index.pin(node, above=lease.node)
        if found < len(own):
            self._pool.mark_ready(own[found:])
            node = self._index.append(node, tokens[matched:], own[found:])
            self._shares.grew(lease.root, len(own) - found)
            self._version += 1
        lease.node = node
        lease.indexed = whole

    def _fork(self, lease: Lease) -> Lease:
        with self._lock:
            lease.require_live()
            child = Lease(
                self,
                lease.root,
                lease.node,
                lease.tokens[: lease.ready],
                lease.table_copy(),
                lease.indexed,
                lease.ready,
            )
            if lease.ready % self.block_size:
                partial = lease.own_blocks()[:1]
                copy = self._allocate(1, int(partial[0]))
                self._copy(partial, copy)
                child.put_blocks(copy)
            self._index.pin(lease.node)
            child.accesses = self._accesses
            self._leases[child] = None
            return child

    def _copy(self, source: Blocks, target: Blocks) -> None:
        if self._copy_blocks is None:
            return
        try:
            self._copy_blocks(source, target)
        except BaseException:
            self._pool.release(target)
            raise

    def _abandon(self, lease: Lease) -> None:
        with self._lock:
            lease.require_live()
            self._withdraw(lease)

    def _release(self, lease: Lease, hints: RetentionHints | None) -> None:
        with self._lock:
            if not lease.live:
                return
            del self._leases[lease]
            self._withdraw(lease)
            if lease.num_blocks > lease.indexed:
                self._pool.release(lease.own_blocks())
            self._compactor.wake()
            self._now += 1
            self._ticks.note(self._now)
            if lease.root.detached:
                self._index.unpin(lease.node, self._now)
                self._evictor.forget([lease.node])
            else:
                self._remember(lease, hints)
                self._index.unpin(lease.node, self._now)
                if lease.node.evictable:
                    self._policy.offer(lease.node)
            lease.close()
            self._index.drop_if_empty(lease.root)

    def _remember(self, lease: Lease, hints: RetentionHints | None) -> None:
        """Tell the policy what the path of a lease was used for."""
        if lease.used and lease.indexed:
            lookup = Lookup(lease.matched // self.block_size, lease.accesses)
            ghosts = self._policy.accessed(lease.node, lease.indexed_tokens(), lease.scope, lookup)
            self._accesses += 1
            if ghosts:
                self._tell_ghosts(lease, ghosts * self.block_size)
        if hints is not None and lease.indexed:
            self._policy.retain(lease.node, lease.scope, lease.indexed, hints)

    def _tell_ghosts(self, lease: Lease, tokens: int) -> None:
        """Of these, only those count that the prompt asked for."""
        tokens = min(tokens, self.reusable(lease.wanted_length) - lease.matched)
        if tokens > 0:
            self._observer.ghost_hit("device", tokens)

    # Room.

    def _available(self) -> int:
        return self._pool.free_count + self._index.unleased

    def _allocate(self, n: int, after: int | None) -> Blocks:
        short = n - self._pool.free_count
        if short > 0:
            if n > self._available():
                raise OutOfBlocksError(n, self._available())
            self._evictor.evict(short)
        return self._pool.allocate(n, after)

    def _count_evicted(self, freed: int) -> None:
        if freed:
            self._compactor.wake()
            self._version += 1
            self._counters.evicted += freed

    def _withdraw(self, lease: Lease) -> None:
        if lease.announced:
            self._in_flight.withdraw(lease)
            lease.announced = False
