"""A host tier whose compaction is watched, and can be interrupted."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from cache_core.block_header import BlockHeader
from cache_core.metrics import RecordingObserver
from cache_core.tiers.host import HostTier
from tests.cache_core.tiers.blocks import BLOCK, headers_of, put

SIZE = 256


class Host:
    """A host tier, and what somebody does while it copies rows."""

    def __init__(self, blocks: int, **options: object) -> None:
        self.observer = RecordingObserver()
        self.tier = HostTier(blocks * SIZE, SIZE, BLOCK, observer=self.observer, **options)  # type: ignore[arg-type]

    def compact(self, limit: int = 4, after: Callable[[], None] = lambda: None) -> int:
        """All there is to do; says in how many steps."""
        for steps in range(1, 10_000):
            more = self.tier.compact(limit)
            self.tier.check_integrity()
            after()
            if not more:
                return steps
        raise AssertionError("it does not come to an end")

    def row(self, header: BlockHeader) -> int:
        row = self.tier._table.row(header.key)
        assert row is not None
        return row

    def rows(self, headers: Sequence[BlockHeader]) -> list[int]:
        return [self.row(header) for header in headers]

    def cuts(self) -> int:
        """Blocks that do not lie behind the one before them, though that is there."""
        table = self.tier._table
        rows = map(table.row, table.keys())
        return sum(table.parent_row(row) not in (None, row - 1) for row in rows if row is not None)

    def rank(self) -> tuple[int, int]:
        """Parts that do not lie together, and how high everything lies."""
        assert self.tier._pool is not None
        return self.cuts(), int(np.flatnonzero(self.tier._pool.holders > 0).sum())

    def uses(self) -> dict[bytes, int]:
        """Every block, and when it was used last."""
        table = self.tier._table
        return dict(zip(table.keys(), map(table.last_use, table.keys()), strict=True))

    def fragmentation(self) -> float:
        assert self.tier._pool is not None
        return self.tier._pool.fragmentation()

    def free(self) -> int:
        assert self.tier._pool is not None
        return self.tier._pool.free_count

    @contextmanager
    def in_the_middle(self, act: Callable[[], None], always: bool = True) -> Iterator[None]:
        """`act` once, when rows have been copied and the table does not know it yet; `always`: that must happen."""
        compactor = self.tier._compactor
        assert compactor is not None
        switch, waiting = compactor._switch, [act]

        def after_the_copy(*args: object) -> int:
            if waiting:
                compactor._lock.release()  # as if it had come before the lock was taken
                try:
                    waiting.pop()()
                finally:
                    compactor._lock.acquire()
            return switch(*args)  # type: ignore[arg-type]

        compactor._switch = after_the_copy  # type: ignore[method-assign]
        try:
            yield
        finally:
            del compactor._switch  # type: ignore[attr-defined]
        assert not (waiting and always), "nothing was copied"


def holed(blocks: int = 64, size: int = 2) -> tuple[Host, list[list[BlockHeader]]]:
    """Every second chain of `size` blocks was deleted; the others."""
    it = Host(blocks)
    chains = [headers_of(1000 * number, size) for number in range(blocks // size)]
    for chain in chains:
        put(it.tier, chain, SIZE)
    for chain in chains[::2]:
        it.tier.delete([header.key for header in chain])
    return it, chains[1::2]


def scattered(count: int = 12, blocks: int = 40) -> tuple[Host, list[BlockHeader]]:
    """A chain whose blocks lie anywhere, each for itself, and half of the tier free."""
    it = Host(blocks)
    chain = headers_of(0, count)
    for place in np.random.default_rng(1).permutation(count).tolist():
        put(it.tier, headers_of(5000 + 100 * place, 1), SIZE)
        put(it.tier, chain[place : place + 1], SIZE)
    it.tier.delete([headers_of(5000 + 100 * place, 1)[0].key for place in range(0, count, 2)])
    assert it.cuts() >= count - 2
    return it, chain


def keys_of(headers: Sequence[BlockHeader]) -> list[bytes]:
    return [header.key for header in headers]
