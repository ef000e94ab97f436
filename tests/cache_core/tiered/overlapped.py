"""A request that computes the front of its prompt while the rear comes up into its own blocks."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cache_core import Lease, OutOfBlocksError
from cache_core.load_or_recompute import Plan
from cache_core.tiered import Ask, OwnLoad
from tests.cache_core.tiered.world import BLOCK, Tokens, World, until


def decides(it: World, front: int, split: int) -> None:
    """From now on that many leading blocks are loaded first, and those from `split` on while the middle is computed."""

    def plan(sources: list[str], start: int, overlap: bool, ahead: Mapping[str, int], wait: float) -> Plan:
        n = len(sources)
        return Plan(min(front, n), min(split, n) if overlap else n, n, 1.0, 2.0, 3.0)

    it.tiers._estimates.plan = plan  # type: ignore[method-assign, assignment]


@contextmanager
def decided(it: World, front: int, split: int) -> Iterator[None]:
    """As `decides`, inside."""
    decides(it, front, split)
    try:
        yield
    finally:
        del it.tiers._estimates.plan  # type: ignore[method-assign]


class Request:
    """One that computes block after block, and takes what came when it gets there."""

    def __init__(self, it: World, ids: Tokens, scope: str = "default") -> None:
        self.it, self.scope, self.ids = it, scope, ids
        self.ask: Ask | None = it.tiers.ask(ids, scope, alone=True)
        self.lease: Lease | None = None
        self.load: OwnLoad | None = None
        self.computed_blocks = 0
        self.came = 0  # tokens

    def admit(self) -> None:
        if self.ask is not None:
            until(lambda: self.ask is None or not self.ask.waits)
            self.load = self.ask.take_load()
            self.ask.cancel()
        self.lease = self.it.cache.acquire(self.ids, self.scope)
        self.it.check(self.lease, self.scope)
        try:
            self.lease.extend(self.ids[self.lease.matched :])
        except OutOfBlocksError:
            self.leave()
            raise

    def step(self) -> bool:
        """One block, if it may compute it. False: it has to wait."""
        lease, load = self.lease, self.load
        assert lease is not None
        if load is not None:
            load.advance(lease, lease.ready)
            if load.there and lease.ready == load.start:
                lease.commit(load.end)
                self.came += load.take().total()
                self.load = load = None
                self.it.check(lease, self.scope)
            elif load.over:
                self.load = load = None
        if load is not None and load.limit(lease.ready) <= lease.ready:
            return False
        end = min(lease.ready // BLOCK * BLOCK + BLOCK, len(self.ids))
        if lease.ready < end:
            self._compute(lease, end)
        return True

    def _compute(self, lease: Lease, end: int) -> None:
        block = lease.ready // BLOCK
        blocks, tokens = lease.blocks, lease.tokens
        self.it.write(int(blocks[block]), tokens[:end], self.scope)
        lease.commit(end)
        self.computed_blocks += 1

    def finish(self) -> None:
        assert self.lease is not None
        while self.lease.ready < len(self.ids):
            if not self.step():
                until(lambda: self.load is None or not self.load.loading)
        self.it.check(self.lease, self.scope)
        self.lease.release()

    def leave(self) -> None:
        assert self.lease is not None
        if self.load is None:
            self.lease.release()
        else:
            self.load.leave(self.lease)
