from cache_core import LRU
from cache_core.node import Node, Root
from tests.cache_core.eviction.driving import cache_of, cached, put


def leaf(now: int) -> Node:
    node = Node(Root("s"), b"\0" * 4, b"\0" * 4)
    node.last_access = now
    return node


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


def test_no_more_than_needed_is_cut_off_the_coldest_prefix() -> None:
    cache = cache_of(10)
    put(cache, [1, 2, 3, 4, 5])
    put(cache, [6, 7, 8, 9])
    assert cache.evict(2) == 2
    assert cached(cache, [1, 2, 3, 4, 5]) == 3
    assert cached(cache, [6, 7, 8, 9]) == 4


def test_a_shared_prefix_outlives_its_branches() -> None:
    cache = cache_of(10)
    put(cache, [1, 2, 3])
    put(cache, [1, 2, 4])
    put(cache, [9])
    assert cache.evict(1) == 1
    assert (cached(cache, [1, 2, 3]), cached(cache, [1, 2, 4])) == (2, 3)
    assert cache.evict(1) == 1
    assert (cached(cache, [1, 2, 4]), cached(cache, [9])) == (2, 1)
    assert cache.evict(9) == 3
    cache.check_integrity()


def test_looking_does_not_warm_but_using_does() -> None:
    cache = cache_of(10)
    put(cache, [1, 2])
    put(cache, [3, 4])
    assert cached(cache, [1, 2]) == 2
    assert cache.evict(1) == 1
    assert cached(cache, [1, 2]) == 1
    put(cache, [1])
    assert cache.evict(1) == 1
    assert (cached(cache, [1]), cached(cache, [3, 4])) == (1, 1)
