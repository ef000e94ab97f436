"""Engines' own blocks, of any size, end up under the keys that prompts are looked up by."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.chain import CHUNK, PromptChain
from gateway.routing.kv_changes import Cleared, Removed, Stored, in_parts
from gateway.routing.kv_feed import KvFeed
from gateway.routing.replica_index import ReplicaIndex
from gateway.routing.told import ToldReplicas

SEED = b"seed"
PROMPT = np.arange(4000, dtype=np.int32)


def held(index: ReplicaIndex, ids: np.ndarray, seed: bytes = SEED) -> int:
    return index.matched(PromptChain(seed, ids.tobytes()), ["a"])[0]


def feed(size: int, blocks: int, calls: int = 1) -> tuple[ReplicaIndex, KvFeed]:
    """The beginning of `PROMPT`, told in some calls, each block by its number."""
    index = ReplicaIndex()
    its, step = KvFeed(index, "a"), -(-blocks // calls)
    for first in range(0, blocks, step):
        names = list(range(first, min(first + step, blocks)))
        ids = PROMPT[first * size : (first + len(names)) * size]
        its.stored(names, first - 1 if first else None, ids, SEED)
    return index, its


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 16, 32, 48, 64, 100, 128, 512, 1024]), st.integers(1, 3000), st.integers(1, 4))
def test_all_that_is_told_is_found_whatever_the_block_size(size: int, tokens: int, calls: int) -> None:
    blocks = max(1, tokens // size)
    index, _ = feed(size, blocks, calls)
    assert held(index, PROMPT) == blocks * size // 16 * 16
    index.check()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 16, 48, 64, 128, 1024]), st.integers(0, 3000))
def test_without_a_block_nothing_behind_it_is_found_and_nothing_of_its_chunk_is_invented(
    size: int, gone: int
) -> None:
    blocks = 3000 // size
    index, its = feed(size, blocks)
    gone %= blocks
    its.removed([gone])
    start = gone * size
    assert start // CHUNK * CHUNK <= held(index, PROMPT) <= start
    index.check()


def test_blocks_that_go_from_the_end_leave_what_is_before_them() -> None:
    index, its = feed(16, 40)
    its.removed([39, 38])
    assert held(index, PROMPT) == 38 * 16


def test_another_seed_shares_nothing() -> None:
    index, _ = feed(16, 40)
    assert held(index, PROMPT, b"other") == 0


def test_what_comes_behind_an_unknown_block_is_left_alone() -> None:
    index = ReplicaIndex()
    its = KvFeed(index, "a")
    its.stored([5, 6], 4, PROMPT[:32], SEED)
    assert (its.orphans, len(index)) == (2, 0)


@pytest.mark.parametrize("names", [[], [1, 2, 3]])
def test_tokens_that_do_not_fit_the_blocks_are_left_alone(names: list[int]) -> None:
    index = ReplicaIndex()
    KvFeed(index, "a").stored(names, None, PROMPT[:32], SEED)
    assert len(index) == 0


def test_what_is_remembered_is_bounded_and_what_is_forgotten_is_not_believed() -> None:
    index = ReplicaIndex()
    its = KvFeed(index, "a", most_blocks=10)
    its.stored(list(range(64)), None, PROMPT[: 64 * 16], SEED)
    assert held(index, PROMPT) == 0
    index.check()


def test_a_cleared_replica_holds_nothing() -> None:
    index, its = feed(16, 64)
    its.cleared()
    assert (held(index, PROMPT), len(index)) == (0, 0)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 4, 16, 48, 128]), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40)
)
def test_whatever_is_told_in_whatever_order_nothing_is_believed_that_is_not_told(
    size: int, steps: list[tuple[int, bool]]
) -> None:
    index = ReplicaIndex()
    its, there, parts = KvFeed(index, "a"), set[int](), 10
    length = len(PROMPT) // size // parts
    for part, comes in steps:
        names = list(range(part * length, (part + 1) * length))
        if comes:
            its.stored(
                names, names[0] - 1 if part else None, PROMPT[names[0] * size : (names[-1] + 1) * size], SEED
            )
            there |= set(names) if not part or names[0] - 1 in there else set()
        else:
            its.removed(names[length // 2 :])
            there -= set(names[length // 2 :])
        index.check()
        whole = next((name for name in range(parts * length) if name not in there), parts * length)
        assert held(index, PROMPT) <= whole * size


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 16, 48, 64, 512]), st.integers(1, 3000), st.integers(1, 40), st.integers(0, 3000))
def test_what_is_told_in_parts_is_the_same_as_what_is_told_whole(
    size: int, tokens: int, most: int, gone: int
) -> None:
    blocks = max(1, tokens // size)
    names = range(blocks)
    told = [
        Stored(names, None, PROMPT[: blocks * size].tobytes(), SEED, "device"),
        Removed(names[gone % blocks :], "device"),
        Stored(names[: gone % blocks], None, b"", SEED, "host"),
        Cleared(),
        Stored(names, None, PROMPT[: blocks * size].tobytes(), SEED, "device"),
    ]
    there = [blocks * size, gone % blocks * size, gone % blocks * size, 0, blocks * size]
    for count in range(1, len(told) + 1):
        whole, parts = ReplicaIndex(), ReplicaIndex()
        ToldReplicas(whole).take("a", told[:count])
        events = ToldReplicas(parts)
        for part in in_parts(told[:count], most):
            assert sum(len(each.names) for each in part if isinstance(each, Stored | Removed)) < 2 * most
            events.take("a", part)
        # Where a part ends inside a chunk, a little more than the chunk is known, and nothing that is not there.
        assert held(whole, PROMPT) <= held(parts, PROMPT) <= there[count - 1]
        parts.check()
