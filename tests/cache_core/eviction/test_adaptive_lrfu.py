import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_core import PrefixCache
from cache_core.eviction import AdaptiveLRFU
from tests.cache_core.eviction.driving import cache_of, cached, put

PATHS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=60)


def hot_and_cold(requests: int) -> list[list[int]]:
    """Nine prefixes that return in turn, each after 27 blocks that never do."""
    fresh = iter(range(1_000, 1_000_000))
    paths = []
    for number in range(requests):
        paths += [[number % 9], *([next(fresh)] for _ in range(3))]
    return paths


@settings(deadline=None)
@given(PATHS, st.sampled_from([0.5, 2.0, 8.0]))
def test_the_score_is_the_decayed_number_of_uses(paths: list[list[int]], half_life: float) -> None:
    """Against a simulator over single blocks that sums over all uses anew for every victim."""
    capacity = 12
    policy = AdaptiveLRFU([half_life])
    cache = cache_of(capacity, policy)
    uses: dict[tuple[int, ...], list[float]] = {}
    held: set[tuple[int, ...]] = set()
    now = 0.0
    for path in paths:
        prefixes = [tuple(path[:end]) for end in range(1, len(path) + 1)]
        assert cached(cache, path) == sum(prefix in held for prefix in prefixes)
        pinned = set(prefixes)
        held |= pinned
        while len(held) > capacity:
            parents = {prefix[:-1] for prefix in held}
            leaves = list(held - parents - pinned)
            scores = {leaf: sum(2 ** ((use - now) / half_life) for use in uses[leaf]) for leaf in leaves}
            lowest = min(scores.values())
            if sum(score < lowest * (1 + 1e-6) for score in scores.values()) > 1:
                return  # a tie may go either way
            held.remove(min(leaves, key=scores.__getitem__))
        put(cache, path)
        now += len(path) / capacity
        if len(uses) + len(prefixes) > 5 * capacity:
            return  # from here on something may be forgotten
        for prefix in prefixes:
            uses.setdefault(prefix, []).append(now)


def hits(cache: PrefixCache, paths: list[list[int]]) -> int:
    return sum(put(cache, path) for path in paths)


def test_it_learns_to_hold_what_returns_between_what_does_not() -> None:
    paths = hot_and_cold(600)
    policy = AdaptiveLRFU()
    adaptive = hits(cache_of(12, policy), paths)
    assert hits(cache_of(12, "lru"), paths) == 0
    assert adaptive > 300
    assert policy.half_life > 1


def test_it_goes_back_to_recency_when_the_traffic_does() -> None:
    policy = AdaptiveLRFU()
    cache = cache_of(12, policy)
    hits(cache, hot_and_cold(600))
    assert policy.half_life > 1
    working_sets = [[base + step % 10] for base in range(0, 60_000, 100) for step in range(30)]
    hits(cache, working_sets)
    assert policy.half_life <= 1


def test_votes_depend_on_the_traffic_alone() -> None:
    def choices() -> list[float]:
        policy, traffic = AdaptiveLRFU(vote_every=20), random.Random(5)
        cache = cache_of(30, policy)
        seen = []
        for _ in range(800):
            put(cache, [traffic.randrange(3), min(int(traffic.expovariate(0.1)), 60), traffic.randrange(3)])
            seen.append(policy.half_life)
        return seen

    first = choices()
    assert first == choices()
    assert len(set(first)) > 1, "the traffic should make it choose"


def test_uses_are_remembered_beyond_eviction() -> None:
    cache = cache_of(4, AdaptiveLRFU([1000.0]))
    for _ in range(5):
        put(cache, [1])
    cache.flush()
    for token in (2, 3, 4, 1, 5, 6, 7):
        put(cache, [token])
    assert cached(cache, [1]) == 1


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000))
def test_what_is_remembered_is_bounded(seed: int) -> None:
    policy, traffic = AdaptiveLRFU(), random.Random(seed)
    capacity = 10
    cache = cache_of(capacity, policy)
    for _ in range(300):
        path = [traffic.randrange(40) for _ in range(traffic.randrange(1, 15))]
        put(cache, path)
        resident = sum(max(record.resident) for record in _records(policy))
        assert policy._history.blocks <= max(5 * capacity, resident)
        assert len(policy._history._forgettable) <= policy._history.blocks + 1


def _records(policy: AdaptiveLRFU) -> list:  # type: ignore[type-arg]
    found = []
    stack = [*policy._history._roots.values()]
    while stack:
        record = stack.pop()
        stack.extend((record.children or {}).values())
        if record.parent is not None:
            found.append(record)
    return found


def test_a_purged_scope_leaves_nothing_behind() -> None:
    policy = AdaptiveLRFU()
    cache = cache_of(10, policy)
    put(cache, [1, 2, 3], scope="a")
    put(cache, [1, 2], scope="b")
    cache.purge("a")
    assert [*policy._history._roots] == ["b"]
    assert policy._history.blocks == 2
    assert {shadow.used for shadow in policy._shadows} == {2}


@pytest.mark.parametrize("half_lives", [[], [0.0], [2.0, 1.0]])
def test_half_lives_are_positive_and_ascending(half_lives: list[float]) -> None:
    with pytest.raises(ValueError, match="half-lives"):
        AdaptiveLRFU(half_lives)
