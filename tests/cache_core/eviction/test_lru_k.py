import pytest

from cache_core.eviction import LRUK
from tests.cache_core.eviction.driving import cache_of, cached, put


def test_what_was_used_once_goes_before_what_was_used_twice() -> None:
    cache = cache_of(3, LRUK(2))
    for token in (1, 1, 2, 3, 4):
        put(cache, [token])
    assert [cached(cache, [token]) for token in (1, 2, 3, 4)] == [1, 0, 1, 1]


def test_of_those_used_twice_the_one_whose_last_but_one_use_is_older_goes() -> None:
    cache = cache_of(2, LRUK(2))
    for token in (1, 2, 2, 1):  # 1 is the more recent one, 2 was used twice in a shorter time
        put(cache, [token])
    cache.evict(1)
    assert (cached(cache, [1]), cached(cache, [2])) == (0, 1)


def test_uses_before_an_eviction_count() -> None:
    cache = cache_of(2, LRUK(2))
    put(cache, [1])
    cache.flush()
    for token in (1, 2, 3):
        put(cache, [token])
    assert (cached(cache, [1]), cached(cache, [2])) == (1, 0)


def test_with_one_use_it_is_lru() -> None:
    cache = cache_of(2, LRUK(1))
    for token in (1, 2, 1, 3):
        put(cache, [token])
    assert (cached(cache, [1]), cached(cache, [2])) == (1, 0)
    with pytest.raises(ValueError, match="one use at least"):
        LRUK(0)
