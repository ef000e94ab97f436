"""Compaction joins what is free and what belongs together, touches nothing that is in use, and comes to an end."""

import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_core import BlockPool, Lease, PrefixCache
from cache_core.block_pool import READY, Blocks
from cache_core.compaction_passes import TOLERATED
from cache_core.metrics import RecordingObserver
from cache_core.prefix_index import nodes_below

BLOCK = 2


class Cache:
    """A cache whose blocks hold the hash of the tokens up to their end."""

    def __init__(self, blocks: int) -> None:
        self.pool = BlockPool(blocks, BLOCK)
        self.stored = np.zeros(blocks, dtype=np.int64)
        self.observer = RecordingObserver()
        self.cache = PrefixCache(self.pool, "lru", copy_blocks=self.copy, observer=self.observer)

    def copy(self, source: Blocks, target: Blocks) -> None:
        self.stored[target] = self.stored[source]

    def serve(self, *tokens: int) -> Lease:
        """Cache a prompt of that many blocks' tokens; the lease is still held."""
        ids = np.array(tokens, dtype=np.int32)
        lease = self.cache.acquire(ids)
        lease.extend(ids[lease.matched :])
        for place, block in enumerate(lease.blocks.tolist()):
            self.stored[block] = hash(tuple(tokens[: (place + 1) * BLOCK]))
        lease.commit()
        return lease

    def one(self, number: int, blocks: int) -> Lease:
        """A prompt of `blocks` blocks that shares nothing with another number's."""
        return self.serve(number, *range(1, blocks * BLOCK))

    def compact(self, limit: int = 4, after: Callable[[], None] = lambda: None) -> int:
        """All there is to do; says in how many steps."""
        for steps in range(1, 10_000):
            more = self.cache.compact(limit)
            self.check()
            after()
            if not more:
                return steps
        raise AssertionError("it does not come to an end")

    def check(self) -> None:
        self.cache.check_integrity()
        for root in self.cache._index.roots():
            ends = {root: b""}
            for node in nodes_below(root):
                assert node.parent is not None
                before = ends[node.parent]
                ends[node] = before + node.label
                tokens = np.frombuffer(ends[node], dtype=np.int32).tolist()
                first = len(before) // 4 // BLOCK
                for place, block in enumerate(node.block_ids().tolist(), first + 1):
                    assert self.stored[block] == hash(tuple(tokens[: place * BLOCK])), (
                        "other bytes than its own"
                    )

    def parts(self) -> int:
        """Places where an edge's blocks do not follow each other."""
        nodes = itertools.chain.from_iterable(nodes_below(root) for root in self.cache._index.roots())
        return sum(int((np.diff(node.block_ids()) != 1).sum()) for node in nodes)

    def rank(self) -> tuple[int, int]:
        """Parts that do not lie together, and how high everything lies."""
        return self.parts(), int(np.flatnonzero(self.pool.state == READY).sum())


def checkered(blocks: int = 64, size: int = 2) -> Cache:
    """Every second prompt of `size` blocks was evicted."""
    it = Cache(blocks)
    leases = [it.one(number, size) for number in range(blocks // size)]
    for lease in leases[::2] + leases[1::2]:
        lease.release()
    it.cache.evict(blocks // 2)
    it.check()
    return it


def test_free_blocks_between_prefixes_become_one_run() -> None:
    it = checkered()
    assert it.cache.stats().fragmentation == pytest.approx(1 - 2 / 32)
    it.compact()
    assert it.cache.stats().fragmentation == 0
    assert it.cache.stats().compacted == 16, (
        "the upper half moves into the lower half's holes, each block once"
    )
    assert it.cache.stats().cached == 32
    assert it.observer.record().fragmentation == {"device": 0.0}
    assert it.observer.record().compacted_blocks == {"device": 16}


def test_a_prefix_in_parts_is_put_together_behind_its_parent() -> None:
    it = checkered()
    long = it.serve(*range(9000, 9000 + 12 * BLOCK))
    assert it.parts() > 0
    short = it.serve(*range(9000, 9000 + 4 * BLOCK), 1, 2)  # splits it
    long.release()
    it.compact()
    held = short.blocks.tolist()
    short.release()
    it.compact()
    assert it.parts() == 0
    match = it.cache.hold(np.arange(9000, 9000 + 12 * BLOCK, dtype=np.int32))
    assert match.matched == 12 * BLOCK
    assert held != match.blocks[: len(held)].tolist()


def test_blocks_under_a_lease_stay_where_they_are() -> None:
    it = checkered()
    tokens = np.array([1, *range(1, 2 * BLOCK)], dtype=np.int32)
    held = it.cache.hold(tokens)
    assert held.matched == 2 * BLOCK
    unready = it.cache.acquire(np.arange(500, 510, dtype=np.int32))
    unready.extend(np.arange(500, 510, dtype=np.int32))
    pages = held.blocks.tolist(), unready.blocks.tolist()
    it.compact()
    assert it.cache.stats().compacted > 0
    assert (held.blocks.tolist(), unready.blocks.tolist()) == pages


def test_who_comes_in_the_middle_of_a_move_finds_everything_right() -> None:
    it = Cache(40)
    hole, low, high = it.one(1, 4), it.one(2, 20), it.one(3, 6)
    for lease in (hole, low, high):
        lease.release()
    it.cache.evict(4)
    before = it.cache.stats().compacted
    while it.cache.stats().compacted == before:
        it.cache.compact(2)
    reader = it.cache.hold(np.array([2, *range(1, 20 * BLOCK)], dtype=np.int32))
    pages = reader.blocks.tolist()
    assert it.parts() > 0, "it is half moved"
    it.compact(2)
    assert reader.blocks.tolist() == pages
    reader.release()
    it.compact(2)
    assert it.parts() == 0
    assert it.cache.stats().fragmentation == 0


@pytest.mark.parametrize("left", range(0, 20, 3))
@pytest.mark.parametrize("again", [False, True])
def test_what_was_evicted_in_the_middle_of_a_move_is_not_moved_on(left: int, again: bool) -> None:
    it = Cache(60)
    hole, low, high = it.one(1, 4), it.one(2, 20), it.one(3, 30)
    for lease in (hole, high, low):
        lease.release()
    it.cache.evict(4)
    it.cache.evict(24)  # of the high one
    while it.cache.stats().compacted < 6:
        it.cache.compact(3)
    assert it.parts() > 0, "it is half moved"
    it.cache.evict(it.cache.stats().cached - left)
    if again:
        it.serve(2, *range(1, 20 * BLOCK)).release()  # the same node, other blocks
    it.compact()
    assert it.cache.stats().cached == (20 if again else left)
    assert it.cache.stats().fragmentation <= TOLERATED


def test_where_nothing_is_to_be_gained_nothing_is_moved_or_looked_at_again() -> None:
    it = Cache(64)
    it.one(1, 10).release()
    it.compact()
    assert it.cache.stats().compacted == 0
    it.cache._compactor._next_move = None  # type: ignore[assignment, method-assign]  # whoever looks again fails
    assert not it.cache.compact()


def test_nothing_of_a_purged_scope_is_held_on_to() -> None:
    it = checkered()
    for _ in range(3):
        it.cache.compact(1)
    held = it.cache._compactor
    assert held._seen or held._unseen
    it.cache.purge("default")
    assert held._move is None
    assert held._seen == held._unseen == []
    it.compact()


def test_a_failing_copy_loses_nothing() -> None:
    it = checkered()

    def fail(source: Blocks, target: Blocks) -> None:
        raise OSError("a device that takes no copies")

    it.cache._copy_blocks = fail
    with pytest.raises(OSError, match="takes no copies"):
        it.compact()
    it.check()
    it.cache._copy_blocks = it.copy
    it.compact()
    assert it.cache.stats().fragmentation <= TOLERATED


def test_a_little_room_elsewhere_is_not_worth_a_copy() -> None:
    it = Cache(100)
    leases = [it.one(number, 2) for number in range(10)]
    for lease in leases:
        lease.release()
    it.cache.evict(2)  # 2 of 82 free blocks lie apart
    it.compact()
    assert it.cache.stats().compacted == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_whatever_lies_where_it_ends_with_less_in_parts(seed: int, limit: int) -> None:
    dice = random.Random(seed)
    it = Cache(dice.randint(20, 120))
    leases: list[Lease] = []
    for _ in range(60):
        if leases and dice.random() < 0.4:
            leases.pop(dice.randrange(len(leases))).release()
        size = dice.randint(1, 9)
        tokens = [dice.randint(0, 1) for _ in range(size * BLOCK)]
        if it.cache.available() >= size:
            leases.append(it.serve(*tokens))
    for lease in leases[dice.randint(0, 3) :]:
        lease.release()
    it.cache.evict(dice.randint(0, 30))
    ranks = [it.rank()]

    def after() -> None:
        if it.cache._compactor._move is None:
            ranks.append(it.rank())

    it.compact(limit, after)
    assert ranks == sorted(ranks, reverse=True), "a whole move made it worse"
    if not it.cache.stats().leased:
        assert it.cache.stats().fragmentation <= TOLERATED


def test_prefixes_of_many_sizes_leave_hardly_any_hole() -> None:
    dice = random.Random(7)
    it = Cache(2000)
    leases = []
    number = 0
    while it.cache.available() > 60:
        number += 1
        leases.append(it.one(number, dice.randint(1, 50)))
    dice.shuffle(leases)
    for lease in leases:
        lease.release()
    it.cache.evict(900)
    before = it.cache.stats().fragmentation
    it.compact(8)
    assert before > 0.5
    assert it.cache.stats().fragmentation <= TOLERATED
    assert it.parts() == 0
