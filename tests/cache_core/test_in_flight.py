import numpy as np
from numpy.typing import NDArray

from cache_core import BlockPool, PrefixCache


def span(start: int, stop: int) -> NDArray[np.int32]:
    return np.arange(start, stop, dtype=np.int32)


def join(*parts: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.concatenate(parts)


def cache_of(num_blocks: int = 32) -> PrefixCache:
    return PrefixCache(BlockPool(num_blocks, 4))


def test_a_prompt_that_a_live_lease_will_compute_is_found() -> None:
    cache = cache_of()
    owner = cache.acquire(span(0, 20))
    found = cache.computing(join(span(0, 10), span(50, 60)))
    assert found is not None
    assert (found.owner, found.shared) == (owner, 8)


def test_the_shared_part_leaves_the_last_token_to_the_waiter() -> None:
    cache = cache_of()
    cache.acquire(span(0, 20))
    found = cache.computing(span(0, 16))
    assert found is not None
    assert found.shared == 12
    assert cache.computing(span(0, 4)) is None


def test_unrelated_prompts_and_other_scopes_do_not_wait() -> None:
    cache = cache_of()
    cache.acquire(span(0, 20), "a")
    assert cache.computing(span(0, 20), "b") is None
    assert cache.computing(span(1, 21), "a") is None
    assert cache.computing(span(0, 0), "a") is None


def test_a_lease_does_not_wait_for_itself() -> None:
    cache = cache_of()
    owner = cache.acquire(span(0, 20))
    assert cache.computing(span(0, 20), exclude=owner) is None


def test_the_owner_with_the_most_to_share_is_chosen() -> None:
    cache = cache_of()
    cache.acquire(join(span(0, 8), span(70, 80)))
    longest = cache.acquire(join(span(0, 16), span(80, 90)))
    cache.acquire(join(span(0, 12), span(90, 99)))
    found = cache.computing(span(0, 30))
    assert found is not None
    assert (found.owner, found.shared) == (longest, 16)


def test_what_is_ready_already_is_not_waited_for() -> None:
    cache = cache_of()
    owner = cache.acquire(span(0, 20))
    owner.extend(span(0, 20))
    owner.commit(8)
    assert cache.computing(join(span(0, 10), span(50, 60))) is None
    found = cache.computing(span(0, 14))
    assert found is not None
    assert (found.owner.ready, found.shared) == (8, 12)


def test_an_owner_ends_with_its_prompts_last_whole_block() -> None:
    cache = cache_of()
    owner = cache.acquire(span(0, 18))
    owner.extend(span(0, 18))
    owner.commit(15)
    assert cache.computing(span(0, 18)) is not None
    owner.commit(16)
    assert cache.computing(span(0, 18)) is None
    assert not owner.announced


def test_a_prompt_with_no_whole_block_left_is_not_announced() -> None:
    cache = cache_of()
    assert not cache.acquire(span(0, 3)).announced


def test_a_waiter_goes_on_from_the_last_ready_block_of_an_owner_that_is_gone() -> None:
    cache = cache_of()
    owner = cache.acquire(span(0, 20))
    owner.extend(span(0, 20))
    owner.commit(9)
    assert cache.computing(span(0, 20)) is not None
    owner.release()
    assert cache.computing(span(0, 20)) is None
    assert cache.acquire(span(0, 20)).matched == 8


def test_an_abandoned_prompt_is_not_waited_for() -> None:
    cache = cache_of()
    owner = cache.acquire(span(0, 20))
    owner.abandon()
    assert cache.computing(span(0, 20)) is None
    assert owner.live


def test_a_lease_that_computes_something_else_is_no_owner_any_more() -> None:
    cache = cache_of()
    owner = cache.acquire(span(0, 20))
    owner.extend(join(span(0, 9), span(60, 63)))
    assert cache.computing(span(0, 20)) is None
    owner.release()
    cache.check_integrity()


def test_blocks_that_were_evicted_meanwhile_are_no_reason_to_wait_in_vain() -> None:
    cache = cache_of()
    owner = cache.acquire(span(0, 20))
    owner.extend(span(0, 20))
    owner.commit()
    owner.release()
    late = cache.acquire(join(span(0, 12), span(70, 75)))
    cache.evict(32)
    assert cache.computing(span(0, 20)) is None
    assert late.matched == 12


def test_a_purge_ends_all_owners_of_the_scope() -> None:
    cache = cache_of()
    owner = cache.acquire(span(0, 20), "a")
    cache.acquire(span(0, 20), "b")
    cache.purge("a")
    assert not owner.announced
    assert cache.computing(span(0, 20), "a") is None
    assert cache.computing(span(0, 20), "b") is not None
    owner.release()


def test_a_fork_announces_nothing() -> None:
    cache = cache_of()
    owner = cache.acquire(span(0, 20))
    owner.extend(span(0, 12))
    owner.commit()
    assert not owner.fork().announced
