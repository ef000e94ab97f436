import numpy as np
import pytest
from numpy.typing import NDArray

from cache_core import BlockPool, LeaseError, LeaseReleasedError, OutOfBlocksError, PrefixCache
from cache_core.block_pool import Blocks


def span(start: int, stop: int) -> NDArray[np.int32]:
    return np.arange(start, stop, dtype=np.int32)


def cache_of(num_blocks: int = 16, block: int = 4) -> PrefixCache:
    return PrefixCache(BlockPool(num_blocks, block))


def put(cache: PrefixCache, tokens: NDArray[np.int32], scope: str = "default") -> None:
    lease = cache.acquire(tokens, scope)
    lease.extend(tokens[lease.matched :])
    lease.commit()
    lease.release()


@pytest.mark.parametrize(("n", "expected"), [(0, 0), (1, 0), (4, 0), (5, 4), (8, 4), (9, 8)])
def test_the_last_token_is_never_reusable(n: int, expected: int) -> None:
    assert cache_of().reusable(n) == expected


def test_a_wholly_cached_prompt_still_computes_its_last_token() -> None:
    cache = cache_of()
    put(cache, span(0, 8))
    assert cache.match(span(0, 8)) == 8
    lease = cache.acquire(span(0, 8))
    assert (lease.matched, lease.ready, lease.length) == (4, 4, 4)
    lease.extend(span(4, 8))
    lease.commit()
    cache.check_integrity()
    assert cache.stats().leased == 2


def test_an_empty_prompt_gets_an_empty_lease() -> None:
    cache = cache_of()
    lease = cache.acquire(span(0, 0))
    assert (lease.matched, lease.blocks.tolist(), lease.tokens.tolist()) == (0, [], [])
    lease.release()
    cache.check_integrity()


def test_the_page_table_has_shared_blocks_first_then_own_ones() -> None:
    cache = cache_of()
    put(cache, span(0, 8))
    first = cache.acquire(span(0, 12))
    first.extend(span(8, 12))
    second = cache.acquire(span(0, 12))
    second.extend(span(8, 12))
    assert first.blocks.dtype == np.int32
    assert first.blocks[:2].tolist() == second.blocks[:2].tolist()
    assert first.blocks[2] != second.blocks[2]


def test_what_is_extended_is_visible_only_when_committed() -> None:
    cache = cache_of()
    lease = cache.acquire(span(0, 9))
    lease.extend(span(0, 9))
    assert cache.match(span(0, 9)) == 0
    lease.commit(7)
    assert cache.match(span(0, 9)) == 4
    lease.commit()
    assert cache.match(span(0, 9)) == 8
    assert lease.ready == 9


def test_nothing_becomes_less_ready() -> None:
    lease = cache_of().acquire(span(0, 8))
    lease.extend(span(0, 8))
    lease.commit()
    lease.commit(3)
    assert lease.ready == 8


def test_more_than_the_lease_covers_cannot_be_ready() -> None:
    lease = cache_of().acquire(span(0, 8))
    lease.extend(span(0, 4))
    with pytest.raises(LeaseError, match="covers 4"):
        lease.commit(5)


def test_the_second_to_commit_takes_over_the_first_ones_blocks() -> None:
    cache = cache_of()
    first, second = cache.acquire(span(0, 9)), cache.acquire(span(0, 9))
    first.extend(span(0, 9))
    second.extend(span(0, 9))
    own = second.blocks.tolist()
    first.commit()
    second.commit()
    assert second.blocks[:2].tolist() == first.blocks[:2].tolist()
    assert second.blocks[2] == own[2]
    assert cache.stats().free == 16 - 4
    first.release()
    assert cache.evict(16) == 0, "the second lease pins what it took over"
    cache.check_integrity()


def test_taking_over_splits_an_edge_that_goes_on_further() -> None:
    cache = cache_of()
    first, second = cache.acquire(span(0, 13)), cache.acquire(np.append(span(0, 8), [90, 91, 92, 93]))
    first.extend(span(0, 12))
    second.extend(np.append(span(0, 8), span(90, 94)))
    first.commit()
    second.commit()
    cache.check_integrity()
    first.release()
    assert cache.evict(16) == 1, "only what the second lease does not use may go"
    assert cache.match(span(0, 12)) == 8


def test_own_blocks_continue_each_other() -> None:
    cache = cache_of()
    lease = cache.acquire(span(0, 9))
    for token in range(20):
        lease.extend(span(token, token + 1))
    assert lease.blocks.tolist() == [0, 1, 2, 3, 4]
    assert lease.tokens.tolist() == list(range(20))


def test_running_out_of_blocks_changes_nothing() -> None:
    cache = cache_of(num_blocks=4)
    put(cache, span(100, 108))
    lease = cache.acquire(span(0, 30))
    lease.extend(span(0, 7))
    before, version = cache.stats(), cache.version
    with pytest.raises(OutOfBlocksError) as caught:
        lease.extend(span(7, 20))
    assert (caught.value.needed, caught.value.available) == (3, 2)
    assert (cache.stats(), cache.version) == (before, version)
    assert lease.tokens.tolist() == list(range(7))
    lease.extend(span(7, 16))
    assert cache.match(span(100, 108)) == 0, "cached blocks give way"
    cache.check_integrity()


def test_available_counts_free_and_evictable_blocks() -> None:
    cache = cache_of(num_blocks=8)
    put(cache, span(0, 12))
    lease = cache.acquire(span(0, 9))
    lease.extend(span(8, 9))
    assert cache.available() == 8 - 2 - 1
    assert cache.evict(8) == 1
    assert cache.available() == 8 - 2 - 1


def test_a_release_frees_own_blocks_and_keeps_committed_ones_cached() -> None:
    cache = cache_of()
    lease = cache.acquire(span(0, 12))
    lease.extend(span(0, 12))
    lease.commit(8)
    lease.release()
    stats = cache.stats()
    assert (stats.free, stats.filling, stats.cached, stats.leased) == (14, 0, 2, 0)
    cache.check_integrity()


def test_after_its_release_a_lease_can_only_be_released_and_counted() -> None:
    lease = cache_of().acquire(span(0, 9))
    lease.extend(span(0, 9))
    lease.commit()
    lease.release()
    lease.release()
    assert (lease.ready, lease.length, lease.live, lease.announced) == (9, 9, False, False)
    uses = (lambda: lease.blocks, lambda: lease.tokens, lease.commit, lease.fork, lease.abandon)
    for use in (*uses, lambda: lease.extend(span(0, 1))):
        with pytest.raises(LeaseReleasedError):
            use()


def test_page_table_and_tokens_cannot_be_written_from_outside() -> None:
    lease = cache_of().acquire(span(0, 9))
    lease.extend(span(0, 9))
    for view in (lease.blocks, lease.tokens):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1


def test_the_caller_may_reuse_its_token_array() -> None:
    cache, tokens = cache_of(), span(0, 9)
    lease = cache.acquire(tokens)
    lease.extend(tokens)
    tokens[:] = -1
    lease.commit()
    assert cache.match(span(0, 9)) == 8


def test_a_fork_shares_whole_blocks_and_copies_the_partial_one() -> None:
    copies: list[tuple[list[int], list[int]]] = []

    def copy(source: Blocks, target: Blocks) -> None:
        copies.append((source.tolist(), target.tolist()))

    cache = PrefixCache(BlockPool(16, 4), copy_blocks=copy)
    lease = cache.acquire(span(0, 10))
    lease.extend(span(0, 10))
    lease.commit()
    child = lease.fork()
    assert child.blocks[:2].tolist() == lease.blocks[:2].tolist()
    assert copies == [([int(lease.blocks[2])], [int(child.blocks[2])])]
    assert (child.matched, child.ready, child.length, child.announced) == (10, 10, 10, False)
    child.extend(span(50, 56))
    lease.extend(span(10, 16))
    child.commit()
    lease.commit()
    cache.check_integrity()
    assert cache.match(span(0, 16)) == 16
    assert cache.match(np.append(span(0, 10), span(50, 56))) == 16


def test_a_fork_at_a_block_boundary_copies_nothing_and_needs_no_block() -> None:
    cache = cache_of(num_blocks=2)
    lease = cache.acquire(span(0, 8))
    lease.extend(span(0, 8))
    lease.commit()
    assert lease.fork().blocks.tolist() == lease.blocks.tolist()
    cache.check_integrity()


def test_a_fork_covers_only_what_is_computed() -> None:
    lease = cache_of().acquire(span(0, 10))
    lease.extend(span(0, 10))
    lease.commit(6)
    assert lease.fork().tokens.tolist() == list(range(6))


def test_a_fork_without_room_changes_nothing() -> None:
    cache = cache_of(num_blocks=3)
    lease = cache.acquire(span(0, 9))
    lease.extend(span(0, 9))
    lease.commit()
    before = cache.stats()
    with pytest.raises(OutOfBlocksError):
        lease.fork()
    assert cache.stats() == before
    cache.check_integrity()


def test_a_copy_that_fails_leaves_no_trace() -> None:
    def refuse(source: Blocks, target: Blocks) -> None:
        raise RuntimeError("no copy today")

    cache = PrefixCache(BlockPool(8, 4), copy_blocks=refuse)
    lease = cache.acquire(span(0, 9))
    lease.extend(span(0, 9))
    lease.commit()
    before = cache.stats()
    with pytest.raises(RuntimeError, match="no copy today"):
        lease.fork()
    assert cache.stats() == before
    cache.check_integrity()


def test_a_flush_forgets_only_what_no_lease_pins() -> None:
    cache = cache_of()
    put(cache, span(0, 8), "a")
    put(cache, span(0, 12), "b")
    lease = cache.acquire(span(0, 9), "b")
    assert cache.flush() == 3
    assert (cache.match(span(0, 8), "a"), cache.match(span(0, 12), "b")) == (0, 8)
    lease.release()
    assert cache.flush("a") == 0
    assert cache.flush("b") == 2
    cache.check_integrity()


def test_a_purged_scope_is_never_matched_again_and_frees_with_its_leases() -> None:
    cache = cache_of()
    put(cache, span(0, 12), "a")
    put(cache, span(0, 4), "b")
    lease = cache.acquire(span(0, 9), "a")
    lease.extend(span(8, 9))
    held = lease.blocks.tolist()
    assert cache.purge("a") == 1
    assert cache.match(span(0, 12), "a") == 0
    assert cache.match(span(0, 4), "b") == 4
    lease.extend(span(9, 12))
    lease.commit()
    assert lease.blocks.tolist() == held
    assert cache.match(span(0, 12), "a") == 0, "what a purged request still computes is its own"
    cache.check_integrity()
    put(cache, span(0, 8), "a")
    lease.release()
    assert cache.match(span(0, 12), "a") == 8
    assert cache.stats().free == 16 - 1 - 2
    cache.check_integrity()


def test_the_version_grows_with_every_change_of_what_is_ready() -> None:
    cache = cache_of()
    lease = cache.acquire(span(0, 9))
    lease.extend(span(0, 9))
    seen = cache.version
    lease.commit(3)
    assert cache.version == seen
    lease.commit()
    assert cache.version > seen
    seen = cache.version
    cache.acquire(span(0, 5)).release()
    lease.release()
    assert cache.version == seen
    cache.evict(1)
    assert cache.version > seen


def test_stats_count_hits_by_requests_and_tokens() -> None:
    cache = cache_of()
    put(cache, span(0, 9))
    put(cache, span(0, 9))
    cache.evict(1)
    stats = cache.stats()
    assert (stats.acquires, stats.hits, stats.prompt_tokens, stats.matched_tokens) == (2, 1, 18, 8)
    assert (stats.total, stats.evicted, stats.leases) == (16, 1, 0)


@pytest.mark.parametrize("block", [1, 16])
def test_a_long_conversation_stays_a_short_path(block: int) -> None:
    cache = cache_of(num_blocks=40_000 // block, block=block)
    for turn in range(1, 9):
        put(cache, span(0, turn * 4_000))
    assert cache.match(span(0, 32_000)) == 32_000
    lease = cache.acquire(span(0, 32_001))
    depth, node = 0, lease.node.parent
    while node is not None:
        depth, node = depth + 1, node.parent
    assert depth <= 8
    assert lease.blocks.tolist() == list(range(32_000 // block))
