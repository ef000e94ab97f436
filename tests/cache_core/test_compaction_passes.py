"""Which pass comes next, and where blocks should lie."""

import numpy as np
import pytest

from cache_core.block_pool import BlockPool
from cache_core.compaction_passes import Pass, Passes, lower_at, whole_at


def pool_of(pattern: str) -> BlockPool:
    """`.` is a free block, `x` one in use."""
    pool = BlockPool(len(pattern), 2)
    pool.allocate(len(pattern))
    free = [place for place, one in enumerate(pattern) if one == "."]
    pool.release(np.array(free, dtype=np.int32))
    return pool


def kinds(passes: Passes, moves: list[bool]) -> list[Pass]:
    """Of as many passes as there are, with something moved in those."""
    found = []
    for move in moves:
        found.append(passes.kind)
        if move:
            passes.moved()
        if not passes.over():
            break
    return found


def test_the_next_kind_comes_where_one_changed_nothing_and_it_begins_anew_where_it_did() -> None:
    passes = Passes(pool_of("x.x."))
    moves = [True, False, True, False, False, True, False, False, False, False]
    order = [Pass.GATHER] * 2 + [Pass.LOWER] + [Pass.GATHER, Pass.LOWER, Pass.SLIDE]
    assert kinds(passes, moves) == [*order, Pass.GATHER, Pass.LOWER, Pass.SLIDE]
    assert passes.asleep


def test_where_free_room_lies_together_there_is_nothing_to_lower() -> None:
    passes = Passes(pool_of("xx.."))
    assert kinds(passes, [True, False, False]) == [Pass.GATHER, Pass.GATHER]
    assert passes.asleep


@pytest.mark.parametrize("at", range(4))
def test_who_is_woken_in_a_pass_goes_over_everything_once_more(at: int) -> None:
    passes = Passes(pool_of("x.x."))
    passes.over()
    for _ in range(at):
        passes.over()
    passes.wake()
    assert not passes.asleep
    assert passes.over()
    assert kinds(passes, [False] * 9) == [Pass.GATHER, Pass.LOWER, Pass.SLIDE]


@pytest.mark.parametrize(
    ("pattern", "count", "behind", "found"),
    [
        ("x...x..x", 2, 1, 1),  # behind the parent
        ("x...x..x", 2, 5, 5),
        ("x...x..x", 2, 4, 5),  # there is none: the shortest run
        ("x...x..x", 3, 5, 1),
        ("x...x..x", 2, None, 5),
        ("x...x..x", 4, 1, None),
    ],
)
def test_what_is_put_together_goes_behind_its_parent_or_into_the_shortest_run(
    pattern: str, count: int, behind: int | None, found: int | None
) -> None:
    assert whole_at(pool_of(pattern), count, behind) == found


@pytest.mark.parametrize(
    ("pattern", "first", "count", "kind", "found"),
    [
        ("..x.xx", 4, 2, Pass.LOWER, 0),  # a hole that it fills
        ("x.xx", 3, 1, Pass.LOWER, 1),
        ("...x.xx", 5, 1, Pass.LOWER, None),  # would leave smaller holes than there are
        ("xx.x..", 3, 1, Pass.LOWER, None),  # right over a hole: it slides
        ("xx.xx", 0, 2, Pass.LOWER, None),  # nothing lies below it
        ("x..xx.", 3, 2, Pass.SLIDE, 1),
        ("xxxxx.", 3, 2, Pass.SLIDE, None),
    ],
)
def test_blocks_go_down_into_holes_that_they_fit_and_slide_over_what_is_free_below(
    pattern: str, first: int, count: int, kind: Pass, found: int | None
) -> None:
    assert lower_at(pool_of(pattern), first, count, kind) == found
