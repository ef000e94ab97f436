from collections import OrderedDict

from hypothesis import given, settings
from hypothesis import strategies as st

from cache_core.extents import FreeExtents

SIZE = 24


def naive_runs(free: set[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for block in sorted(free):
        if runs and sum(runs[-1]) == block:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((block, 1))
    return runs


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, SIZE - 1), st.integers(1, 8)), max_size=60))
def test_runs_are_those_of_a_naive_set(steps: list[tuple[int, int, int]]) -> None:
    extents, free = FreeExtents(0, SIZE), set(range(SIZE))
    for kind, block, n in steps:
        runs = naive_runs(free)
        if kind == 0 and free:
            start, taken = extents.take_best(n)
            length = dict(runs)[start]
            fitting = [run for _, run in runs if run >= n]
            assert (length, taken) == ((min(fitting), n) if fitting else (max(r for _, r in runs), length))
            free -= set(range(start, start + taken))
        elif kind == 1:
            taken = extents.take_at(block, n)
            assert taken == min(dict(runs).get(block, 0), n)
            free -= set(range(block, block + taken))
        elif kind == 2:
            length = next((i for i in range(n) if block + i in free or block + i >= SIZE), n)
            if length:
                extents.give(block, length)
                free |= set(range(block, block + length))
        runs = naive_runs(free)
        assert extents.length_at(block) == dict(runs).get(block, 0)
        assert extents.length_before(block) == next((run for at, run in runs if at + run == block), 0)
        fitting = [(start, length) for start, length in runs if length >= n]
        assert extents.shortest(n, 100) == sorted(fitting, key=lambda run: (run[1], run[0]))
        assert [length for _, length in extents.shortest(n, 2)] == sorted(length for _, length in fitting)[:2]
        assert extents.runs() == naive_runs(free)
        assert extents.largest() == max((length for _, length in naive_runs(free)), default=0)


def test_the_first_of_many_runs_is_found_without_a_walk_over_those_that_are_gone() -> None:
    """A dict keeps a place for every key that was taken out; to take n runs one by one would cost n squared."""
    extents = FreeExtents(0, 0)
    for block in range(0, 4000, 2):
        extents.give(block, 1)
    assert [extents.take_best(1) for _ in range(2000)] == [(block, 1) for block in range(0, 4000, 2)]
    for block in range(0, 4000, 2):
        extents.give(block, 1)
    extents.take_at(0, 1)
    assert all(type(starts) is OrderedDict for starts in extents._starts_by_length.values())
