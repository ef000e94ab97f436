"""What holds for every policy, through the real cache."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_core import BlockPool, Lease, PrefixCache, UnknownPolicyError
from cache_core.eviction import DEFAULT_POLICY, POLICIES, AdaptiveLRFU, RetentionHints, policy_named
from cache_core.node import Node
from cache_core.prefix_index import nodes_below
from tests.cache_core.eviction.driving import cache_of, cached, put

PATHS = st.lists(st.integers(0, 1), min_size=1, max_size=10)
HINTS = st.one_of(
    st.none(),
    st.builds(
        RetentionHints,
        pin_s=st.sampled_from([0.0, 2.0]),
        ttl_s=st.sampled_from([None, 0.0, 3.0]),
        priority=st.sampled_from([-1, 0, 1]),
    ),
)
STEPS = st.lists(
    st.tuples(PATHS, st.sampled_from(["serve", "hold", "let go", "evict", "flush", "purge"]), HINTS),
    max_size=60,
)


def test_policies_have_names() -> None:
    assert sorted(POLICIES) == ["adaptive_lrfu", "cost", "lru", "lru_k"]
    assert policy_named(DEFAULT_POLICY).name == AdaptiveLRFU.name
    with pytest.raises(UnknownPolicyError, match=r"'fifo'.*lru"):
        policy_named("fifo")


def watched(cache: PrefixCache) -> list[Node]:
    """Every victim of `cache` from now on; each must be an unleased leaf."""
    victims: list[Node] = []
    trim = cache._index.trim

    def checked(node: Node, n: int) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
        assert not node.children
        assert node.leases == 0
        victims.append(node)
        return trim(node, n)

    cache._index.trim = checked  # type: ignore[method-assign]
    return victims


@pytest.mark.parametrize("policy", sorted(POLICIES))
@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_only_unleased_leaves_go_and_all_of_them_can(
    policy: str, steps: list[tuple[list[int], str, RetentionHints | None]]
) -> None:
    now = 0.0
    cache = cache_of(24, policy, clock=lambda: now)
    watched(cache)
    held: list[tuple[Lease, list[int]]] = []
    for tokens, action, hints in steps:
        now += 0.5
        if action == "serve":
            put(cache, tokens, hints, scope="a")
        elif action == "hold" and len(held) < 2:
            ids = np.array(tokens, dtype=np.int32)
            lease = cache.acquire(ids, "a")
            lease.extend(ids[lease.matched :])
            lease.commit()
            held.append((lease, tokens))
        elif action == "let go" and held:
            held.pop(0)[0].release(hints)
        elif action == "evict":
            before = cache.stats().cached
            assert cache.evict(len(tokens)) == min(len(tokens), before)
        elif action == "flush":
            cache.flush()
        elif action == "purge" and not held:
            cache.purge("a")
        cache.check_integrity()
        for _, leased in held:
            assert cached(cache, leased, "a") == len(leased)
    for lease, _ in held:
        lease.release()
    assert cache.evict(24) == 24 - cache.stats().free or cache.stats().free == 24
    assert cache.stats().free == 24, "something can never be evicted"
    now += 1_000
    assert cache.stats().kept == sum(r.blocks for r in _kept(cache))


def _kept(cache: PrefixCache) -> list[object]:
    return [r for keeps in cache._policy._keeps._by_scope.values() for r in keeps]


@pytest.mark.parametrize("policy", ["adaptive_lrfu", "lru_k"])
@settings(max_examples=40, deadline=None)
@given(st.lists(PATHS, min_size=1, max_size=80))
def test_a_parent_never_ranks_below_its_child(policy: str, paths: list[list[int]]) -> None:
    cache = cache_of(16, policy)
    ranking = cache._policy._policy
    for path in paths:
        put(cache, path)
        for root in cache._index.roots():
            for node in nodes_below(root):
                if node.parent is not root and node.parent is not None:
                    assert ranking._score(node.parent) >= ranking._score(node) - 1e-9


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_an_attempt_that_computed_nothing_is_no_use(policy: str) -> None:
    cache = PrefixCache(BlockPool(8, 1), policy)
    put(cache, [1, 2])
    seen = getattr(cache._policy._policy, "_history", None)
    before = seen.accesses if seen else 0
    cache.acquire(np.array([1, 2, 3], dtype=np.int32)).release()
    assert (seen.accesses if seen else 0) == before
