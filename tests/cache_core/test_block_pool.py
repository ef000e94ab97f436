import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from cache_core import BlockPool, IntegrityError, OutOfBlocksError
from cache_core.block_pool import FILLING, FREE, READY


def ids(*blocks: int) -> NDArray[np.int32]:
    return np.array(blocks, dtype=np.int32)


def pool_with_free(num_blocks: int, *free: int) -> BlockPool:
    pool = BlockPool(num_blocks, 16)
    pool.allocate(num_blocks)
    pool.release(ids(*free))
    return pool


def test_a_block_goes_from_free_to_filling_to_ready_to_free() -> None:
    pool = BlockPool(4, 16)
    blocks = pool.allocate(2)
    assert blocks.dtype == np.int32
    assert pool.state[blocks].tolist() == [FILLING, FILLING]
    pool.mark_ready(blocks)
    assert pool.state[blocks].tolist() == [READY, READY]
    assert pool.release(blocks) == 2
    assert pool.state.tolist() == [FREE] * 4
    assert pool.free_count == 4


def test_an_allocation_goes_on_right_behind_its_last_block() -> None:
    pool = pool_with_free(12, 1, 2, 5, 6, 7, 8)
    assert pool.allocate(2, after=4).tolist() == [5, 6]


def test_an_allocation_that_cannot_go_on_takes_the_shortest_run_that_fits() -> None:
    pool = pool_with_free(12, 0, 2, 3, 5, 6, 7, 8)
    assert pool.allocate(2, after=9).tolist() == [2, 3]


def test_what_the_run_behind_does_not_hold_comes_from_one_other_run() -> None:
    pool = pool_with_free(12, 1, 4, 7, 8, 9)
    assert pool.allocate(3, after=3).tolist() == [4, 7, 8]


def test_without_a_run_that_fits_the_fewest_runs_are_used() -> None:
    pool = pool_with_free(12, 0, 2, 4, 5, 7, 8, 9)
    assert pool.allocate(5).tolist() == [7, 8, 9, 4, 5]


def test_after_the_last_block_there_is_nothing_to_go_on_with() -> None:
    pool = pool_with_free(4, 0, 1)
    assert pool.allocate(1, after=3).tolist() == [0]


def test_too_large_an_allocation_changes_nothing() -> None:
    pool = pool_with_free(4, 0, 2)
    with pytest.raises(OutOfBlocksError) as caught:
        pool.allocate(3)
    assert (caught.value.needed, caught.value.available) == (3, 2)
    assert pool.free_runs() == [(0, 1), (2, 1)]
    assert pool.free_count == 2


def test_allocating_nothing_takes_nothing() -> None:
    pool = BlockPool(2, 16)
    assert pool.allocate(0, after=1).tolist() == []
    assert pool.free_count == 2


def test_a_retained_block_outlives_its_first_holder() -> None:
    pool = BlockPool(4, 16)
    blocks = pool.allocate(3)
    pool.retain(blocks[:1])
    assert pool.release(blocks) == 2
    assert pool.holders.tolist() == [-1, 0, 0, 0]
    assert pool.release(blocks[:1]) == 1


def test_a_double_free_is_refused_by_name_and_changes_nothing() -> None:
    pool = BlockPool(4, 16)
    pool.allocate(2)
    pool.release(ids(0))
    with pytest.raises(IntegrityError, match=r"double free.*\[0\]"):
        pool.release(ids(0, 1))
    assert pool.holders.tolist() == [0, -1, 0, 0]
    with pytest.raises(IntegrityError, match="once"):
        pool.release(ids(1, 1))


def test_a_free_block_cannot_be_retained_or_become_ready() -> None:
    pool = BlockPool(4, 16)
    with pytest.raises(IntegrityError, match="free block"):
        pool.retain(ids(0))
    with pytest.raises(IntegrityError, match="only a filling block"):
        pool.mark_ready(ids(0))


def test_a_ready_block_does_not_become_ready_again() -> None:
    pool = BlockPool(4, 16)
    blocks = pool.allocate(1)
    pool.mark_ready(blocks)
    with pytest.raises(IntegrityError):
        pool.mark_ready(blocks)


@pytest.mark.parametrize(
    ("free", "expected"), [((), 0.0), ((3,), 0.0), ((2, 3, 4, 5), 0.0), ((0, 2), 0.5), ((0, 2, 4, 5), 0.5)]
)
def test_fragmentation_is_the_share_of_free_blocks_outside_the_longest_run(
    free: tuple[int, ...], expected: float
) -> None:
    pool = pool_with_free(8, *free)
    assert pool.fragmentation() == expected
    assert pool.longest_free_run == round(len(free) * (1 - expected))


def test_a_pool_without_blocks_or_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="0 x 16"):
        BlockPool(0, 16)
    with pytest.raises(ValueError, match="4 x 0"):
        BlockPool(4, 0)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(-1, 31)), max_size=60))
def test_no_block_is_ever_given_out_twice(steps: list[tuple[bool, int, int]]) -> None:
    pool, held = BlockPool(32, 1), list[NDArray[np.int32]]()
    for take, n, after in steps:
        if take and n <= pool.free_count:
            held.append(pool.allocate(n, after=None if after < 0 else after))
        elif held:
            pool.release(held.pop(n % len(held)))
        taken = np.concatenate([*held, ids()])
        assert len(set(taken.tolist())) == len(taken) == 32 - pool.free_count
        assert (pool.holders[taken] == -1).all()
        assert sum(length for _, length in pool.free_runs()) == pool.free_count
