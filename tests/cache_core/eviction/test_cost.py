from cache_core.eviction import BlockCost, Cost
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
