"""What goes from the host to make room for other blocks, and what is remembered of it."""

from collections.abc import Callable, Sequence

from cache_core.block_pool import BlockPool, Blocks
from cache_core.ghosts import Ghosts
from cache_core.tick_times import TickTimes
from cache_core.tiers.host_table import HostTable

Evicted = tuple[bytes, float]  # key, and seconds since its last use


class HostEviction:
    """Blocks used longest ago go first. The tier's lock is held around every call.

    Args:
        pool: None: the tier is off.
        remove: takes blocks out of the tier.
        clock: seconds, for the age of what is evicted.
    """

    def __init__(
        self,
        pool: BlockPool | None,
        table: HostTable,
        remove: Callable[[Sequence[bytes]], int],
        clock: Callable[[], float],
    ) -> None:
        self.lost = 0  # of what was used from then on, nothing is lost
        self.ghosts = Ghosts(0 if pool is None else pool.num_blocks)
        self._pool = pool
        self._table = table
        self._remove = remove
        self._ticks = TickTimes(clock)

    def use(self, rows: Blocks) -> None:
        """These were used now, the last one latest."""
        self._ticks.note(self._table.use(rows))

    def removed(self) -> None:
        """Something went, whenever it was used."""
        self.lost = self._table.now

    def make_room(self, wanted: Sequence[bytes], keep: Blocks | None) -> tuple[int, list[Evicted]]:
        """Evict what was used longest ago, but none of `keep`, until a row is free for each that is wanted.

        Says how many of them are, and what went. `wanted` are the identities they are for, which are one scope's: the
        first one's share counts.
        """
        if self._pool is None:
            return 0, []
        short = len(wanted) - self._pool.free_count
        evicted = self.evict(self.oldest(short, keep, wanted[0])) if short > 0 else []
        return min(len(wanted), self._pool.free_count), evicted

    def oldest(self, n: int, keep: Blocks | None = None, room_for: bytes | None = None) -> list[bytes]:
        """Keys of the blocks that go next: nobody reads them, and they are not in the rows to `keep`."""
        if self._pool is None:
            return []
        candidates = self._pool.holders == 1
        if keep is not None:
            candidates[keep] = False
        return self._table.oldest(candidates, n, room_for)

    def evict(self, victims: list[bytes]) -> list[Evicted]:
        """Take these out to make room."""
        used = [self._table.last_use(key) for key in victims]
        evicted = [(key, self._ticks.age(at)) for key, at in zip(victims, used, strict=True)]
        self.ghosts.add(victims)
        lost = max([self.lost, *(at + 1 for at in used)])
        self._remove(victims)
        self.lost = lost
        return evicted
