import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bench.sim.opt import optimal_hits
from tests.bench.sim import naive

# paths of a tree whose blocks are numbered by their whole prefix
PATHS = st.lists(
    st.lists(st.integers(1, 3), min_size=1, max_size=5).map(
        lambda path: [int("".join(map(str, path[:end]))) for end in range(1, len(path) + 1)]
    ),
    max_size=30,
)


@given(PATHS, st.integers(1, 12))
def test_it_finds_what_a_plain_search_of_the_future_finds(paths: list[list[int]], capacity: int) -> None:
    requests = [np.array(path, dtype=np.int32) for path in paths]
    assert optimal_hits(requests, capacity) == naive.optimal_hits(paths, capacity)


@given(PATHS, st.integers(1, 12))
def test_nothing_beats_it(paths: list[list[int]], capacity: int) -> None:
    requests = [np.array(path, dtype=np.int32) for path in paths]
    assert optimal_hits(requests, capacity) >= naive.lru_hits(paths, capacity)


def test_what_is_not_needed_again_is_not_cached() -> None:
    requests = [np.array([block], dtype=np.int32) for block in (1, 2, 3, 4, 1)]
    assert optimal_hits(requests, 1) == 1
