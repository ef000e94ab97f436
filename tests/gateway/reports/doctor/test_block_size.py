"""The block size follows from reported hits by arithmetic, and is called proven only where it is."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.reports.doctor.block_size import SharedPrefix, find_block_size

TAIL = 12


def reported(shared: list[int], block: int, head: int, rate: int = 1) -> list[SharedPrefix]:
    """What an engine reports whose template puts `head` tokens in front, at `rate` tokens a word."""
    return [
        SharedPrefix(
            words, words + TAIL, head + rate * (words + TAIL), (head + rate * words) // block * block
        )
        for words in shared
    ]


@given(
    shared=st.lists(st.integers(1, 5000), min_size=2, max_size=16),
    block=st.integers(1, 700),
    head=st.integers(0, 60),
    rate=st.integers(1, 3),
)
def test_it_is_a_multiple_of_the_block_and_equal_where_proven(
    shared: list[int], block: int, head: int, rate: int
):
    found = find_block_size(reported(shared, block, head, rate))
    if found.tokens is None:
        assert all(head + rate * words < block for words in shared)
        return
    assert found.tokens % block == 0
    assert not found.irregular
    if found.proven:
        assert found.tokens == block


def test_prompts_spread_over_a_block_prove_it():
    found = find_block_size(reported([70, 77, 85, 90, 103, 111], 16, 5))
    assert (found.tokens, found.proven) == (16, True)


def test_hits_alone_on_even_multiples_prove_nothing():
    found = find_block_size(reported([64, 128, 256], 16, 0))
    assert (found.tokens, found.proven) == (64, False)


def test_hits_that_fall_short_by_more_than_a_block_are_irregular():
    points = reported([100, 200, 300, 400], 16, 5)
    short = SharedPrefix(400, 412, 417, 64)
    assert find_block_size([*points[:3], short]).irregular


def test_without_hits_nothing_is_known():
    assert find_block_size([SharedPrefix(100, 112, 120, 0)]).tokens is None
    assert find_block_size([]).tokens is None


def test_a_spread_that_half_the_divisor_allows_proves_nothing():
    found = find_block_size(reported([16, 23, 39], 8, 0))
    assert (found.tokens, found.proven) == (16, False)
