"""Nobody loses blocks to a scope that floods the cache, and nobody who is alone is held back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_core import BlockPool, PrefixCache, RetentionHints, RetentionLimits
from cache_core.tokens import Tokens

BLOCK = 4
BLOCKS = 40


def cache_of(share: float, policy: str = "adaptive_lrfu") -> PrefixCache:
    limits = RetentionLimits(scope_share=share, total_share=max(share, 0.5))
    return PrefixCache(BlockPool(BLOCKS, BLOCK), policy, limits=limits)


def prompt(number: int, blocks: int = 4) -> Tokens:
    tokens = np.arange(blocks * BLOCK + 1, dtype=np.int32)
    tokens[:-1] += 1000 * (number + 1)
    return tokens


def use(cache: PrefixCache, tokens: Tokens, scope: str, hints: RetentionHints | None = None) -> int:
    """One request; says how many tokens it reused."""
    lease = cache.acquire(tokens, scope)
    matched = lease.matched
    lease.extend(tokens[matched:])
    lease.commit()
    lease.release(hints)
    cache.check_integrity()
    return matched


def flood(cache: PrefixCache, scope: str, uses: int = 3) -> None:
    """Many prompts, each used more often than those of quiet scopes."""
    for number in range(100, 200):
        for _ in range(uses):
            use(cache, prompt(number), scope)


@pytest.mark.parametrize("policy", ["adaptive_lrfu", "lru", "lru_k", "cost"])
def test_a_scope_that_floods_the_cache_takes_nothing_from_one_within_its_share(policy: str) -> None:
    cache = cache_of(0.25, policy)
    for number in (1, 2):
        use(cache, prompt(number), "quiet")
    flood(cache, "loud")
    assert [cache.match(prompt(number), "quiet") for number in (1, 2)] == [16, 16]
    assert cache.stats().free < 4, "the rest is the other's"


def test_without_shares_it_takes_all() -> None:
    cache = cache_of(1.0)
    use(cache, prompt(1), "quiet")
    flood(cache, "loud")
    assert cache.match(prompt(1), "quiet") == 0


def test_more_leaves_of_others_than_are_passed_over_do_not_help_the_flood() -> None:
    """Whatever the policy thinks of them: they were used once, and long ago."""
    cache = PrefixCache(BlockPool(200, BLOCK), "lru", limits=RetentionLimits(scope_share=0.25))
    for scope in ("a", "b"):
        for number in range(45):
            use(cache, prompt(number, 1), scope)
    flood(cache, "loud")
    assert all(cache.match(prompt(number, 1), scope) for scope in ("a", "b") for number in range(45))


def test_a_scope_alone_takes_the_whole_cache() -> None:
    cache = cache_of(0.1)
    flood(cache, "only")
    stats = cache.stats()
    assert stats.cached > BLOCKS - 8


def test_a_flood_gives_way_until_others_have_their_share() -> None:
    cache = cache_of(0.25)
    flood(cache, "loud")
    for number in (1, 2):
        use(cache, prompt(number), "late")
    flood(cache, "loud")
    assert [cache.match(prompt(number), "late") for number in (1, 2)] == [16, 16]


def test_what_a_loud_scope_keeps_by_hints_costs_others_nothing() -> None:
    cache = cache_of(0.25)
    for number in (1, 2):
        use(cache, prompt(number), "quiet")
    for number in range(100, 200):
        use(cache, prompt(number), "loud", RetentionHints(pin_s=60.0))
    assert [cache.match(prompt(number), "quiet") for number in (1, 2)] == [16, 16]
    assert cache.stats().cached > BLOCKS - 8


def test_a_purged_scope_counts_for_nobody() -> None:
    cache = cache_of(0.25)
    flood(cache, "loud")
    lease = cache.acquire(prompt(199), "loud")
    cache.purge("loud")
    use(cache, prompt(1), "quiet")
    lease.release()
    flood(cache, "loud")
    assert cache.match(prompt(1), "quiet") == 16


@settings(max_examples=60, deadline=None)
@given(
    uses=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.integers(1, 6), st.booleans()), max_size=80
    ),
    share=st.sampled_from([0.0, 0.1, 0.3, 1.0]),
)
def test_whatever_scopes_ask_for_they_get_and_counts_are_right(
    uses: list[tuple[str, int, int, bool]], share: float
) -> None:
    cache = cache_of(share)
    for scope, number, blocks, pinned in uses:
        use(cache, prompt(number, blocks), scope, RetentionHints(pin_s=60.0) if pinned else None)
        assert cache.match(prompt(number, blocks), scope) == blocks * BLOCK
