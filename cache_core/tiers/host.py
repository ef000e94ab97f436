"""The host tier: blocks in one arena of main memory, each in one contiguous row."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np

from cache_core.block_header import BlockHeader
from cache_core.block_pool import BlockPool, Blocks, single_holds
from cache_core.drop_reason import DropReason
from cache_core.memory import anonymous_memory
from cache_core.metrics import CacheObserver, NullObserver
from cache_core.purge_numbers import PurgeNumbers
from cache_core.tiers.base import (
    FULL,
    BlockBytes,
    GoesOn,
    Mask,
    Tier,
    TierCounters,
    TierStats,
    Watermarks,
    buffers_of,
    for_ever,
)
from cache_core.tiers.host_arena import Arena, take_arena
from cache_core.tiers.host_compaction import HostCompactor
from cache_core.tiers.host_eviction import Evicted, HostEviction
from cache_core.tiers.host_filling import NO_ROW, Fillings, Reservation
from cache_core.tiers.host_sums import RowSums
from cache_core.tiers.host_table import HostTable

__all__ = ["NO_ROW", "HostTier", "Reservation"]


class HostTier(Tier):
    """`capacity` bytes of main memory, taken in blocks of `block_bytes`.

    Rows are read and written in place by transfers: `reserve` and `publish` on the way in, `pin` and `unpin`
    on the way out; what is reserved or pinned is never evicted or overwritten. When there is no room, the
    blocks used longest ago make some; `touch` and every read use a chain from its end, so a parent never goes
    before its children. A scope that holds more than its share makes room first. Where the machine refuses the
    memory the tier is off: it stores nothing and says why.
    """

    def __init__(
        self,
        capacity: int,
        block_bytes: int,
        block_size: int,
        *,
        allocate: Callable[[int], Arena] = anonymous_memory,
        pin_memory: Callable[[Arena], bool] | None = None,  # makes it fast for an accelerator; says if it did
        checksums: bool = True,  # CRC-32C of every block, checked on every read
        on_evict: Callable[[list[bytes]], None] | None = None,  # keys; called with no lock held
        observer: CacheObserver | None = None,
        clock: Callable[[], float] = time.monotonic,  # seconds, for the age of what is evicted
        scope_share: float = 1.0,  # of the rows, that one scope may hold before it makes room for others
        apart: bool = False,  # each row is read alone: how they lie means nothing, and is not told
    ) -> None:
        if capacity < 0 or block_bytes < 1 or block_size < 1:
            raise ValueError(
                f"a host tier of {capacity} bytes in blocks of {block_bytes}, {block_size} tokens"
            )
        self.block_bytes = block_bytes
        self.block_size = block_size
        self._lock = Lock()
        self._observer = observer or NullObserver()
        self._counters = TierCounters("host", self._observer)
        self._apart = apart
        self._on_evict = on_evict
        self._purges = PurgeNumbers()
        self._filling = Fillings()
        # uint8 [num_blocks, block_bytes]; and why the tier is off.
        self.rows, self.refusal = take_arena(capacity // block_bytes, block_bytes, allocate)
        self.num_blocks = len(self.rows)
        self._sums = RowSums(self.rows) if checksums and self.num_blocks else None
        self.pinned = bool(self.num_blocks and pin_memory is not None and pin_memory(self.rows))
        self._pool = BlockPool(self.num_blocks, block_size) if self.num_blocks else None
        self._table = HostTable(self.num_blocks, block_size, int(scope_share * self.num_blocks))
        self._eviction = HostEviction(self._pool, self._table, self._remove, clock)
        self._compactor = (
            None
            if self._pool is None
            else HostCompactor(self._pool, self._table, self.rows, self._lock, self._moved)
        )

    # In place, for transfers.

    def reserve(self, headers: Sequence[BlockHeader], only_copies: bool = False) -> Reservation:
        """Rows for the blocks that are neither there nor being filled, as far as there is room, front first.

        What lies before them makes no room for them, unless they are `only_copies` of what a colder tier has.
        """
        rows = np.full(len(headers), NO_ROW, dtype=np.int32)
        there = np.zeros(len(headers), dtype=np.bool_)
        with self._lock:
            wanted: list[int] = []
            for place, header in enumerate(headers):
                there[place] = self._table.row(header.key) is not None
                if not there[place] and header.key not in self._filling and self._fits(header):
                    self._filling.begin(header.key)
                    wanted.append(place)
            before = self._table.parents([headers[place] for place in wanted])
            self._eviction.use(before)
            keep = None if only_copies else before
            identities = [headers[place].identity for place in wanted]
            room, evicted = self._eviction.make_room(identities, keep)
            self._filling.not_begun([headers[place].key for place in wanted[room:]])
            if room and self._pool is not None:
                behind = self._table.row(headers[wanted[0]].parent_key)
                rows[wanted[:room]] = self._pool.allocate(room, behind)
            reservation = Reservation(tuple(headers), rows, there, self._purges.now)
            self._filling.made(reservation)
        self._counters.drop(DropReason.NO_ROOM, len(wanted) - room)
        self._tell_evicted(evicted)
        return reservation

    def publish(self, reservation: Reservation, whole: Mask) -> None:
        """Make the reserved rows visible whose bytes are whole, and give the others back."""
        rows = reservation.rows
        sums = self._sums_of(rows, whole & (rows != NO_ROW))
        with self._lock:
            identities = {header.identity for header in reservation.headers}
            purged = {one for one in identities if self._purges.last(one) > reservation.purges}
            stored = []
            for place in self._filling.end(reservation):
                header = reservation.headers[place]
                if whole[place] and header.identity not in purged and self._table.row(header.key) is None:
                    self._table.add(header, int(rows[place]), sums.get(place, 0))
                    stored.append(place)
            good = rows[stored]
            bad = np.setdiff1d(rows[rows != NO_ROW], good)
            if self._pool is not None and self._compactor is not None:
                self._pool.mark_ready(good)
                self._compactor.wake()
            self._release(bad)
            self._eviction.use(good[::-1])
        self._counters.add(stored=len(good), written_bytes=len(good) * self.block_bytes)

    def let_others_fill(self, reservation: Reservation) -> None:
        """What fills it hangs: its rows stay reserved until `publish`; its blocks may come another way meanwhile."""
        with self._lock:
            self._filling.leave(reservation)

    def pin(self, headers: Sequence[BlockHeader], use: bool = True) -> Blocks:
        """int32 [headers]: the row of each block, checked and held until `unpin`; NO_ROW where there is none.

        Not to `use` them, but to copy them to a colder tier: that makes them no warmer, and is no hit.
        """
        rows = np.full(len(headers), NO_ROW, dtype=np.int32)
        drops: list[DropReason] = []
        with self._lock:
            for place, header in enumerate(headers):
                row = self._table.row(header.key)
                if row is None:
                    continue
                wrong = self._table.wrong(row, header)
                if wrong is None:
                    rows[place] = row
                else:
                    drops.append(wrong)
                    self._remove([header.key])
            self._retain(rows)
            if use:
                self._eviction.use(rows[rows != NO_ROW][::-1])
        for reason in drops:
            self._counters.drop(reason)
        self._check_sums(headers, rows)
        if use:
            found = int((rows != NO_ROW).sum())
            self._counters.add(hits=found, misses=len(headers) - found - len(drops))
        return rows

    def unpin(self, rows: Blocks) -> None:
        """Let go of what `pin` gave; NO_ROW is skipped."""
        with self._lock:
            for one in single_holds(rows[rows != NO_ROW]):
                self._release(one)

    # The Tier interface.

    def put(self, headers: Sequence[BlockHeader], blocks: BlockBytes) -> Mask:
        sources = buffers_of(blocks)
        reservation = self.reserve(headers)
        whole = np.zeros(len(headers), dtype=np.bool_)
        try:
            for place, row in enumerate(reservation.rows.tolist()):
                if row == NO_ROW:
                    continue
                if len(sources[place]) == self.block_bytes:
                    self.rows[row] = np.frombuffer(sources[place], dtype=np.uint8)
                    whole[place] = True
                else:
                    self._counters.drop(DropReason.WRONG_SIZE)
        finally:
            self.publish(reservation, whole)
        return self.contains([header.key for header in headers])

    def get(self, headers: Sequence[BlockHeader], out: BlockBytes, timeout: float | None = None) -> Mask:
        """As `Tier.get`; memory is never slow, so `timeout` does not count here."""
        targets = buffers_of(out)
        purges = self._purges.now
        rows = self.pin(headers)
        served: Mask = rows != NO_ROW
        try:
            for place in np.flatnonzero(served).tolist():
                if len(targets[place]) == self.block_bytes:
                    np.frombuffer(targets[place], dtype=np.uint8)[:] = self.rows[rows[place]]
                else:
                    served[place] = False
                    self._counters.drop(DropReason.WRONG_SIZE)
        finally:
            self.unpin(rows)
        later = [self._purges.last(header.identity) > purges for header in headers]
        gone = np.array(later, dtype=np.bool_) & served
        self._counters.drop(DropReason.PURGED, int(gone.sum()))
        served &= ~gone
        self._counters.add(read_bytes=int(served.sum()) * self.block_bytes)
        return served

    def contains(self, keys: Sequence[bytes]) -> Mask:
        with self._lock:
            there = [self._table.row(key) is not None for key in keys]
        mask: Mask = np.array(there, dtype=np.bool_)
        return mask

    def stamp(self, keys: Sequence[bytes]) -> int | None:
        """The last use that is longest ago: what was used since then goes after what went until now."""
        with self._lock:
            rows = [self._table.row(key) for key in keys]
            if None in rows or not rows:
                return None
            return min(self._table.last_use(key) for key in keys)

    def kept_since(self, moment: int) -> bool:
        return moment >= self._eviction.lost

    def evicted_lately(self, keys: Sequence[bytes]) -> Mask:
        return self._eviction.ghosts.has(keys)

    def delete(self, keys: Sequence[bytes]) -> int:
        with self._lock:
            return self._remove(keys)

    def touch(self, keys: Sequence[bytes]) -> None:
        with self._lock:
            rows = [row for key in keys if (row := self._table.row(key)) is not None]
            self._eviction.use(np.array(rows[::-1], dtype=np.int32))

    def sweep(self, n: int, elsewhere: Callable[[Sequence[bytes]], Mask]) -> int:
        """Free up to `n` rows that are next to go, of blocks that `elsewhere` says another tier has; says how many.

        `elsewhere` may wait, and is asked without the lock.
        """
        with self._lock:
            coldest = self._eviction.oldest(n)
        if not coldest:
            return 0
        there = elsewhere(coldest)
        with self._lock:
            still = set(self._eviction.oldest(n))  # what was used meanwhile stays
            going = [key for key, has in zip(coldest, there.tolist(), strict=True) if has and key in still]
            evicted = self._eviction.evict(going)
        self._tell_evicted(evicted)
        return len(evicted)

    def coldest(self, n: int) -> list[BlockHeader]:
        """Of up to `n` rows that are next to go."""
        with self._lock:
            headers = map(self._table.header, self._eviction.oldest(n))
            return [header for header in headers if header is not None]

    def header(self, key: bytes) -> BlockHeader | None:
        """Of a block that is there now."""
        with self._lock:
            return self._table.header(key)

    def purge(self, identity: bytes) -> int:
        with self._lock:
            self._purges.add(identity)
            self._eviction.ghosts.clear()
            return self._remove(self._table.keys_of(identity))

    def clear(self) -> int:
        with self._lock:
            return self._remove(self._table.keys())

    def clean(self, goes_on: GoesOn = for_ever, marks: Watermarks = FULL) -> int:
        """Nothing: a freed row is room at once, and `sweep` asks which blocks lie in a colder tier."""
        return 0

    def compact(self, limit: int = 8) -> bool:
        """For idle time: move up to `limit` rows that nobody holds, so that prefixes and free room lie together.

        True while there is more to do: call it again as long as nobody waits. Nothing that can be found changes, nor
        when it was used. No lock is held while bytes are copied.
        """
        return self._compactor is not None and self._compactor.step(limit)

    def stats(self) -> TierStats:
        with self._lock:
            blocks, fragmentation = len(self._table), self._pool.fragmentation() if self._pool else 0.0
        self._tell_fragmentation(fragmentation)
        capacity = self.num_blocks * self.block_bytes
        return self._counters.snapshot(blocks, blocks * self.block_bytes, capacity)

    def close(self) -> None:
        """Forget everything; rows that are pinned or reserved stay readable until they are let go."""
        with self._lock:
            self._purges.add_all()
            self._remove(self._table.keys())
        if self._sums is not None:
            self._sums.close()

    def check_integrity(self) -> None:
        """Prove that every row is in exactly one place: free, filling, or under one key. For quiet moments.

        Raises:
            IntegrityError: says what is wrong.
        """
        with self._lock:
            if self._pool is not None:
                moving = 0 if self._compactor is None else self._compactor.filling
                self._table.check(self._pool, self._filling.rows() + moving)

    # Under the lock.

    def _fits(self, header: BlockHeader) -> bool:
        return self._pool is not None and len(header.tokens) == 4 * self.block_size

    def _remove(self, keys: Sequence[bytes]) -> int:
        self._eviction.removed()
        found = [row for key in keys if (row := self._table.pop(key)) is not None]
        rows = np.array(found, dtype=np.int32)
        if self._compactor is not None:
            self._compactor.removed(rows)
        self._release(rows)
        return len(rows)

    def _retain(self, rows: Blocks) -> None:
        if self._pool is not None:
            for one in single_holds(rows[rows != NO_ROW]):
                self._pool.retain(one)

    def _release(self, rows: Blocks) -> None:
        if self._pool is not None and self._compactor is not None:
            self._compactor.let_go(self._pool.release(rows))

    # Without it.

    def _check_sums(self, headers: Sequence[BlockHeader], rows: Blocks) -> None:
        """Drop rows whose bytes changed since they were published, and let go of them."""
        for place, found in self._sums_of(rows, rows != NO_ROW).items():
            row = int(rows[place])
            if found == self._table.sums[row]:
                continue
            with self._lock:
                if self._table.row(headers[place].key) == row:
                    self._remove([headers[place].key])
                self._release(rows[place : place + 1])
            rows[place] = NO_ROW
            self._counters.drop(DropReason.CHECKSUM)

    def _sums_of(self, rows: Blocks, wanted: Mask) -> dict[int, int]:
        """By place, of the rows that are wanted; nothing where the tier keeps no sums."""
        places = np.flatnonzero(wanted)
        return (
            {} if self._sums is None else dict(zip(places.tolist(), self._sums.of(rows[places]), strict=True))
        )

    def _moved(self, blocks: int, fragmentation: float) -> None:
        self._counters.add(compacted=blocks)
        self._observer.compacted("host", blocks)
        self._tell_fragmentation(fragmentation)

    def _tell_fragmentation(self, share: float) -> None:
        if not self._apart:
            self._observer.fragmentation("host", share)

    def _tell_evicted(self, evicted: list[Evicted]) -> None:
        if not evicted:
            return
        self._counters.add(evicted=len(evicted))
        for age, blocks in Counter(age for _, age in evicted).items():
            self._observer.evicted("host", "lru", blocks, age)
        if self._on_evict is not None:
            self._on_evict([key for key, _ in evicted])
