import numpy as np
import pytest

from cache_core.eviction import BlockCost, Cost, MeasuredCosts
from tests.cache_core.eviction.driving import cache_of, cached, put


def test_recomputing_costs_more_the_deeper_a_block_is() -> None:
    cost = BlockCost(token_s=1.0, attention_s=0.5)
    assert cost.per_byte(0, 2) == 2 * (1 + 0.5)
    assert cost.per_byte(10, 2) == 2 * (1 + 0.5 * 11)


def test_a_block_is_worth_no_more_than_its_reload() -> None:
    assert BlockCost(reload_s=3.0, block_bytes=2.0).per_byte(1_000_000, 16) == 1.5


def test_the_longer_of_two_prefixes_used_alike_is_kept() -> None:
    cache = cache_of(6, Cost(BlockCost(attention_s=1.0)))
    put(cache, [1, 2, 3, 4])
    put(cache, [5])
    put(cache, [6])
    put(cache, [7])
    assert cached(cache, [1, 2, 3, 4]) == 4
    assert (cached(cache, [5]), cached(cache, [6]), cached(cache, [7])) == (0, 1, 1)


def test_what_was_dear_sinks_when_it_is_not_used_again() -> None:
    cache = cache_of(6, Cost(BlockCost(attention_s=1.0)))
    put(cache, [1, 2, 3, 4])
    for token in range(10, 60):
        put(cache, [token])
    assert cached(cache, [1, 2, 3, 4]) == 0


def test_what_is_used_often_is_kept() -> None:
    cache = cache_of(3, "cost")
    for token in (1, 1, 1, 2, 3, 4):
        put(cache, [token])
    assert [cached(cache, [token]) for token in (1, 2, 3, 4)] == [1, 0, 1, 1]


def measured(reload_s: float) -> MeasuredCosts:
    """Prefill takes a millisecond a token at every depth."""
    return MeasuredCosts(1e-3, 0.0, {"host": reload_s, "disk": 10 * reload_s})


@pytest.mark.parametrize(("reload_s", "goes"), [(1e-5, 2), (1.0, 1)])
def test_of_two_alike_the_one_that_a_tier_gives_back_sooner_goes_first(reload_s: float, goes: int) -> None:
    cache = cache_of(4, "cost")
    cache.lies_over({"host": lambda _: True})
    cache.measured(measured(reload_s))
    for token in (1, 2):
        put(cache, [token])
    cache.found_below(np.array([2], dtype=np.int32), "default", "host", 0)
    cache.evict(1)
    assert cached(cache, [goes]) == 0
    assert cached(cache, [3 - goes]) == 1


def test_of_two_in_tiers_the_one_in_the_warmer_goes_first() -> None:
    cache = cache_of(4, "cost")
    cache.lies_over({"host": lambda _: True, "disk": lambda _: True})
    for token, tier in ((1, "disk"), (2, "host")):
        put(cache, [token])
        cache.found_below(np.array([token], dtype=np.int32), "default", tier, 0)  # type: ignore[arg-type]
    cache.measured(measured(1e-5))
    cache.evict(1)
    assert (cached(cache, [1]), cached(cache, [2])) == (1, 0)


def test_measured_costs_compare_with_those_assumed_before() -> None:
    """A prompt used twice before anything was measured outranks one that is used once after it, and not three times."""
    cache = cache_of(4, "cost")
    put(cache, [1])
    put(cache, [1])
    cache.measured(measured(1.0))
    put(cache, [2])
    cache.evict(1)
    assert (cached(cache, [1]), cached(cache, [2])) == (1, 0)
    for _ in range(3):
        put(cache, [3])
    cache.evict(1)
    assert (cached(cache, [1]), cached(cache, [3])) == (0, 1)


def test_costs_of_nothing_change_nothing() -> None:
    cache = cache_of(4, "cost")
    put(cache, [1])
    cache.measured(MeasuredCosts(0.0, 0.0, {"host": 1.0}))
    assert cache.evict(1) == 1
