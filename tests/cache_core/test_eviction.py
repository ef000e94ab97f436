import numpy as np
import pytest

from cache_core import LRU, BlockPool, PrefixCache, UnknownPolicyError
from cache_core.eviction import POLICIES, policy_named
from cache_core.node import Node, Root


def leaf(now: int) -> Node:
    node = Node(Root("s"), b"\0" * 4, b"\0" * 4)
    node.last_access = now
    return node


def put(cache: PrefixCache, *tokens: int) -> None:
    """Compute and cache these tokens; one more is needed to be able to match all of them later."""
    lease = cache.acquire(np.array([*tokens, -1], dtype=np.int32))
    lease.extend(np.array(tokens[lease.matched :], dtype=np.int32))
    lease.commit()
    lease.release()


def cached(cache: PrefixCache, *tokens: int) -> int:
    return cache.match(np.array(tokens, dtype=np.int32))


def test_the_leaf_used_longest_ago_goes_first() -> None:
    policy = LRU()
    nodes = [leaf(now) for now in (3, 1, 2)]
    for node in nodes:
        policy.offer(node)
    assert [policy.victim() for _ in range(4)] == [nodes[1], nodes[2], nodes[0], None]


def test_use_after_the_offer_counts() -> None:
    policy = LRU()
    first, second = leaf(1), leaf(2)
    policy.offer(first)
    policy.offer(second)
    first.last_access = 3
    assert policy.victim() is second
    assert policy.victim() is first


def test_nodes_that_stopped_being_evictable_are_passed_over() -> None:
    policy = LRU()
    leased, inner, gone, good = (leaf(now) for now in range(1, 5))
    for node in (leased, inner, gone, good):
        policy.offer(node)
    leased.leases = 1
    inner.children = {b"": leaf(1)}
    gone.parent = None
    assert policy.victim() is good
    assert policy.victim() is None
    leased.leases = 0
    policy.offer(leased)
    assert policy.victim() is leased


def test_a_node_is_queued_once() -> None:
    policy, node = LRU(), leaf(1)
    policy.offer(node)
    policy.offer(node)
    assert policy.victim() is node
    assert policy.victim() is None


def test_nodes_that_left_the_tree_are_let_go_of() -> None:
    policy, kept = LRU(), leaf(10_000)
    policy.offer(kept)
    for now in range(5_000):
        node = leaf(now)
        policy.offer(node)
        node.parent = None
    assert len(policy._queue) < 2_000
    assert policy.victim() is kept


def test_policies_have_names() -> None:
    assert isinstance(policy_named("lru"), LRU)
    assert sorted(POLICIES) == ["adaptive_lrfu", "cost", "lru", "lru_k"]
    with pytest.raises(UnknownPolicyError, match=r"'fifo'.*lru"):
        policy_named("fifo")


def test_no_more_than_needed_is_cut_off_the_coldest_prefix() -> None:
    cache = PrefixCache(BlockPool(10, 1))
    put(cache, 1, 2, 3, 4, 5)
    put(cache, 6, 7, 8, 9)
    assert cache.evict(2) == 2
    assert cached(cache, 1, 2, 3, 4, 5) == 3
    assert cached(cache, 6, 7, 8, 9) == 4


def test_a_shared_prefix_outlives_its_branches() -> None:
    cache = PrefixCache(BlockPool(10, 1))
    put(cache, 1, 2, 3)
    put(cache, 1, 2, 4)
    put(cache, 9)
    assert cache.evict(1) == 1
    assert (cached(cache, 1, 2, 3), cached(cache, 1, 2, 4)) == (2, 3)
    assert cache.evict(1) == 1
    assert (cached(cache, 1, 2, 4), cached(cache, 9)) == (2, 1)
    assert cache.evict(9) == 3
    cache.check_integrity()


def test_looking_does_not_warm_but_using_does() -> None:
    cache = PrefixCache(BlockPool(10, 1))
    put(cache, 1, 2)
    put(cache, 3, 4)
    assert cached(cache, 1, 2) == 2
    assert cache.evict(1) == 1
    assert cached(cache, 1, 2) == 1
    put(cache, 1)
    assert cache.evict(1) == 1
    assert (cached(cache, 1), cached(cache, 3, 4)) == (1, 1)
