"""The test is exact: what it says agrees with counting all signs, and leans only where the differences lean."""

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.reports.isolation.signed_rank import p_value, shift

SMALL = st.lists(st.integers(-6, 6).filter(bool), min_size=1, max_size=9)


def counted(differences: list[int]) -> float:
    """The same by trying all signs, with ranks that ties share, none above the middle one."""
    sizes = sorted(abs(each) for each in differences)
    rank = {
        size: sum(2 * i + 2 for i, s in enumerate(sizes) if s == size) / sizes.count(size) for size in sizes
    }
    ranks = [min(rank[abs(each)], len(sizes) + 1) for each in differences]
    seen = sum(r for r, each in zip(ranks, differences, strict=True) if each > 0)
    choices = itertools.product((0, 1), repeat=len(ranks))
    sums = [sum(r for r, sign in zip(ranks, signs, strict=True) if sign) for signs in choices]
    return sum(each >= seen - 1e-9 for each in sums) / len(sums)


@given(SMALL)
def test_it_is_what_counting_all_signs_says(differences: list[int]):
    assert p_value(differences) == pytest.approx(counted(differences))


@given(SMALL, st.integers(1, 9))
def test_only_the_order_of_sizes_counts(differences: list[int], factor: int):
    assert p_value(differences) == p_value([factor * each for each in differences])


def test_all_on_one_side_is_as_rare_as_it_can_be():
    assert p_value([0.1 * n for n in range(1, 11)]) == 2**-10
    assert p_value([-0.1 * n for n in range(1, 11)]) == 1.0


def test_two_stumbles_do_not_undo_what_fourteen_differences_say():
    assert p_value([0.1 * n for n in range(1, 15)] + [-50.0, -60.0]) < 0.01
    assert p_value([-0.1 * n for n in range(1, 15)] + [50.0, 60.0]) > 0.9


def test_many_differences_are_counted_as_exactly_as_few():
    draw = Random(1)
    given = [draw.gauss(0.1, 1) for _ in range(200)]
    small, mirrored = p_value(given), p_value([-each for each in given])
    assert 0 < small < 0.5 < mirrored < 1
    assert small + mirrored == pytest.approx(1, abs=0.01)


def test_nothing_says_nothing():
    assert p_value([]) == p_value([0.0, 0.0]) == 1.0
    assert shift([]) == 0.0


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=20), st.integers(-50, 50))
def test_a_shift_is_found_whole(differences: list[int], by: int):
    assert shift([each + by for each in differences]) == pytest.approx(shift(differences) + by)


def test_one_slow_answer_moves_little():
    assert shift([1.0, 1.1, 0.9, 1.0, 500.0]) < 1.2
