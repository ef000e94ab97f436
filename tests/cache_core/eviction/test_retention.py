"""Hints through the real cache, with a clock that the test moves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_core import PrefixCache, RetentionHints, RetentionLimits
from tests.cache_core.eviction.driving import cache_of, cached, put

PINNED = RetentionHints(pin_s=10)
ALL = RetentionLimits(scope_share=1.0, total_share=1.0)
POLICIES = ["lru", "adaptive_lrfu"]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pinned_prefix_outlives_everything_else_until_its_time_is_up(policy: str, clock: Clock) -> None:
    cache = cache_of(10, policy, ALL, clock)
    put(cache, [1, 2, 3], PINNED)
    for token in range(20, 40):
        put(cache, [token] * 3)
    assert cached(cache, [1, 2, 3]) == 3
    clock.now += 11
    for token in range(50, 250):
        put(cache, [token] * 3)
    assert cached(cache, [1, 2, 3]) == 0
    assert cache.stats().kept == 0


def test_a_request_without_other_room_takes_what_is_kept(clock: Clock) -> None:
    cache = cache_of(10, "lru", ALL, clock)
    put(cache, [1, 2, 3], RetentionHints(priority=1))
    put(cache, [4, 5, 6], RetentionHints(pin_s=20))
    put(cache, [7, 8, 9], RetentionHints(pin_s=10))
    assert cache.available() == 10
    put(cache, range(20, 24))
    assert [cached(cache, start) for start in ([1, 2, 3], [4, 5, 6], [7, 8, 9])] == [0, 3, 3]
    put(cache, range(30, 35))
    assert [cached(cache, start) for start in ([4, 5, 6], [7, 8, 9])] == [3, 2]
    assert cache.stats().keeps_overruled == 2


def test_a_pin_holds_through_use_growth_and_branches_by_others(clock: Clock) -> None:
    cache = cache_of(12, "lru", ALL, clock)
    put(cache, [1, 2, 3], PINNED)
    put(cache, [1, 2, 3])
    put(cache, [1, 2, 3, 4, 5])
    put(cache, [1, 2, 9])
    put(cache, [1, 7])
    cache.evict(12 - cache.stats().free - 3)
    assert cached(cache, [1, 2, 3, 4]) == 3
    cache.check_integrity()


def test_new_hints_take_the_place_of_old_ones(clock: Clock) -> None:
    cache = cache_of(10, "lru", ALL, clock)
    put(cache, [1, 2, 3], PINNED)
    put(cache, [4])
    put(cache, [1, 2, 3], RetentionHints(priority=-1))
    assert cache.stats().kept == 0
    cache.evict(3)
    assert (cached(cache, [1]), cached(cache, [4])) == (0, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_low_priority_goes_first_even_if_it_is_newest(policy: str, clock: Clock) -> None:
    cache = cache_of(10, policy, None, clock)
    put(cache, [4, 5])
    put(cache, [1, 2], RetentionHints(priority=-1))
    cache.evict(2)
    assert (cached(cache, [1]), cached(cache, [4, 5])) == (0, 2)


def test_what_is_used_again_is_of_low_priority_no_more(clock: Clock) -> None:
    cache = cache_of(10, "lru", None, clock)
    put(cache, [4, 5])
    put(cache, [1, 2], RetentionHints(priority=-1))
    put(cache, [1, 2])
    cache.evict(2)
    assert (cached(cache, [1, 2]), cached(cache, [4])) == (2, 0)


def test_a_prefix_past_its_time_to_live_goes_first(clock: Clock) -> None:
    cache = cache_of(10, "lru", None, clock)
    put(cache, [4, 5])
    put(cache, [1, 2], RetentionHints(ttl_s=5))
    clock.now += 4
    cache.evict(1)
    assert (cached(cache, [1, 2]), cached(cache, [4, 5])) == (2, 1)
    clock.now += 2
    cache.evict(1)
    assert (cached(cache, [1, 2]), cached(cache, [4, 5])) == (1, 1)


def test_use_ends_a_time_to_live(clock: Clock) -> None:
    cache = cache_of(10, "lru", None, clock)
    put(cache, [4, 5])
    put(cache, [1, 2], RetentionHints(ttl_s=5))
    put(cache, [1, 2])
    clock.now += 6
    cache.evict(1)
    assert (cached(cache, [1, 2]), cached(cache, [4, 5])) == (2, 1)


def test_a_pin_and_a_time_to_live_follow_one_another(clock: Clock) -> None:
    cache = cache_of(10, "lru", ALL, clock)
    put(cache, [1, 2], RetentionHints(pin_s=10, ttl_s=5))
    put(cache, [4, 5])
    clock.now += 6
    cache.evict(1)
    assert (cached(cache, [1, 2]), cached(cache, [4, 5])) == (2, 1)
    put(cache, [7])
    clock.now += 5
    cache.evict(1)
    assert (cached(cache, [1, 2]), cached(cache, [4, 5])) == (1, 1)


def test_high_priority_lasts_for_a_while(clock: Clock) -> None:
    limits = RetentionLimits(scope_share=1.0, total_share=1.0, priority_s=60)
    cache = cache_of(10, "lru", limits, clock)
    put(cache, [1, 2], RetentionHints(priority=1))
    put(cache, [4, 5])
    cache.evict(1)
    assert (cached(cache, [1, 2]), cached(cache, [4, 5])) == (2, 1)
    clock.now += 61
    cache.evict(1)
    assert (cached(cache, [1, 2]), cached(cache, [4, 5])) == (1, 1)


def test_one_scope_cannot_keep_more_than_its_share(clock: Clock) -> None:
    cache = cache_of(40, "lru", RetentionLimits(scope_share=0.25, total_share=0.5), clock)
    for start in (10, 20, 30):
        put(cache, range(start, start + 4), PINNED, scope="greedy")
    assert cache.stats().kept == 8
    assert cache.stats().keeps_refused == 1
    put(cache, range(4), PINNED, scope="modest")
    assert cache.stats().kept == 12
    for start in range(100, 400, 4):
        put(cache, range(start, start + 4), scope="other")
    found = [cached(cache, range(s, s + 4), "greedy") for s in (10, 20, 30)]
    assert found == [4, 4, 2], "of what is not kept, the rest of its share"
    assert cached(cache, range(4), "modest") == 4


def test_all_scopes_together_cannot_keep_more_than_theirs(clock: Clock) -> None:
    cache = cache_of(40, "lru", RetentionLimits(scope_share=0.25, total_share=0.5), clock)
    for scope in "abc":
        put(cache, range(8), PINNED, scope=scope)
    assert (cache.stats().kept, cache.stats().keeps_refused) == (16, 1)


def test_the_number_of_pins_is_bounded(clock: Clock) -> None:
    cache = cache_of(40, "lru", RetentionLimits(1.0, 1.0, scope_keeps=2), clock)
    for token in (1, 2, 3):
        put(cache, [token], PINNED)
    assert (cache.stats().kept, cache.stats().keeps_refused) == (2, 1)


def test_what_priority_keeps_makes_room_for_newer(clock: Clock) -> None:
    cache = cache_of(40, "lru", RetentionLimits(scope_share=0.25, total_share=0.5), clock)
    high = RetentionHints(priority=1)
    for start in (10, 20, 30):
        put(cache, range(start, start + 4), high)
    assert (cache.stats().kept, cache.stats().keeps_refused) == (8, 0)
    for start in range(100, 400, 4):
        put(cache, range(start, start + 4))
    assert [cached(cache, range(s, s + 4)) for s in (10, 20, 30)] == [0, 4, 4]


def test_no_pin_lasts_longer_than_the_limit(clock: Clock) -> None:
    cache = cache_of(10, "lru", RetentionLimits(1.0, 1.0, longest_pin_s=30), clock)
    put(cache, [1, 2], RetentionHints(pin_s=1e9))
    put(cache, [3, 4])
    clock.now += 31
    cache.evict(1)
    assert cached(cache, [1, 2]) == 1


@pytest.mark.parametrize("forget", [PrefixCache.flush, PrefixCache.purge])
def test_what_is_forgotten_counts_for_nobody(forget: object, clock: Clock) -> None:
    cache = cache_of(10, "lru", ALL, clock)
    put(cache, [1, 2], PINNED)
    forget(cache, "default")  # type: ignore[operator]
    assert (cache.stats().kept, cache.stats().free) == (0, 10)


def test_hints_on_nothing_cached_do_nothing(clock: Clock) -> None:
    cache = cache_of(10, "lru", ALL, clock)
    cache.acquire(np.array([1], dtype=np.int32)).release(PINNED)
    assert cache.stats().kept == 0


@pytest.mark.parametrize(
    "wrong",
    [{"pin_s": -1}, {"pin_s": float("inf")}, {"ttl_s": -1.0}, {"ttl_s": float("nan")}, {"priority": 2}],
)
def test_senseless_hints_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="not"):
        RetentionHints(**wrong)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.lists(st.integers(0, 2), min_size=1, max_size=8),
            st.builds(
                RetentionHints,
                pin_s=st.integers(0, 5).map(float),
                ttl_s=st.one_of(st.none(), st.integers(0, 5).map(float)),
                priority=st.sampled_from([-1, 0, 1]),
            ),
            st.integers(0, 3),
        ),
        max_size=60,
    )
)
def test_shares_hold_whatever_is_asked_for(
    requests: list[tuple[str, list[int], RetentionHints, int]],
) -> None:
    clock = Clock()
    limits = RetentionLimits(scope_share=0.4, total_share=0.6, scope_keeps=3, priority_s=4)
    cache = cache_of(20, "adaptive_lrfu", limits, clock)
    for scope, tokens, hints, passed in requests:
        clock.now += passed
        put(cache, tokens, hints, scope)
        keeps = cache._policy._keeps
        assert keeps.blocks == sum(keeps.held(scope) for scope in "ab") <= 12
        for one in "ab":
            mine = keeps._by_scope.get(one, {})
            assert keeps.held(one) == sum(kept.blocks for kept in mine) <= 8
            assert len(mine) <= 3
            for kept in mine:
                assert kept.node.retained is kept
                assert kept.node.parent is not None
    clock.now += 100
    cache.evict(20)
    assert cache.stats().kept == 0
    assert cache.stats().free == 20


def test_what_was_not_used_within_its_time_to_live_is_pruned_though_there_is_room(clock: Clock) -> None:
    cache = cache_of(40, "lru", None, clock)
    put(cache, [1, 2, 3, 4])
    put(cache, [1, 2, 7, 8], RetentionHints(ttl_s=5))
    put(cache, [9, 9], RetentionHints(ttl_s=50))
    put(cache, [5, 6], RetentionHints(priority=-1))
    assert cache.prune() == 0
    clock.now += 6
    assert cache.prune() == 2
    assert cached(cache, [1, 2, 7, 8]) == 2
    assert [cached(cache, start) for start in ([1, 2, 3, 4], [9, 9], [5, 6])] == [4, 2, 2]
    assert cache.prune() == 0
    cache.check_integrity()
    clock.now += 50
    assert cache.prune() == 2
    assert cached(cache, [9, 9]) == 0
    cache.check_integrity()


def test_what_is_in_use_kept_or_used_again_is_not_pruned(clock: Clock) -> None:
    cache = cache_of(40, "lru", ALL, clock)
    put(cache, [1, 2], RetentionHints(ttl_s=5))
    put(cache, [3, 4], RetentionHints(ttl_s=5))
    put(cache, [5, 6], RetentionHints(ttl_s=5, pin_s=10))
    put(cache, [7, 8], PINNED)
    put(cache, [7, 8, 9], RetentionHints(ttl_s=5))
    lease = cache.acquire(np.array([1, 2, -1], dtype=np.int32))
    put(cache, [3, 4])
    clock.now += 6
    assert cache.prune() == 1, "the branch below what is pinned"
    assert [cached(cache, start) for start in ([1, 2], [3, 4], [5, 6], [7, 8, 9])] == [2, 2, 2, 2]
    lease.release()
    clock.now += 5
    assert cache.prune() == 4, "unused, and no more pinned"
    assert [cached(cache, start) for start in ([1, 2], [3, 4], [5, 6], [7, 8])] == [0, 2, 0, 2]
    cache.check_integrity()
