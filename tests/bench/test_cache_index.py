"""The figures about the index are taken from a real cache and come out as they must."""

from bench import cache_index


def test_sessions_on_one_prefix_hold_its_blocks_once() -> None:
    assert cache_index.shared_blocks() == 1.0


def test_metadata_is_counted_without_the_token_ids() -> None:
    assert 0 < cache_index.metadata_bytes(sequences=60) < 2000


def test_both_indexes_are_asked_for_prompts_that_they_hold() -> None:
    cache, prompts = cache_index._filled(1000)
    assert cache.stats().cached >= 1000
    assert all(cache.match(prompt) == len(prompt) for prompt in prompts)
    grown = cache_index.growth(small=500, large=2000, asked=20)
    assert grown.small_p99 > 0
    assert grown.large_p99 > 0
