"""What the index knows of lower tiers goes with its blocks, however nodes are cut and joined, and ages by tier."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_core import BlockPool, PrefixCache
from cache_core.metrics import TierName
from cache_core.prefix_index import nodes_below
from cache_core.residency import BITS, bits_of, joined, noted, split

BLOCK = 2
PROMPTS = st.lists(st.integers(0, 1), max_size=12).map(
    lambda blocks: np.repeat(np.array(blocks, dtype=np.int32), BLOCK)
)
TIERS = st.sampled_from(["host", "disk", "store"])


class Clock:
    """Of one tier: what was noted before `lost` may be gone."""

    def __init__(self) -> None:
        self.now = 0
        self.lost = 0

    def kept(self, moment: int) -> bool:
        return moment >= self.lost


def always(_: int) -> bool:
    return True


def run(cache: PrefixCache, tokens: np.ndarray) -> None:  # type: ignore[type-arg]
    lease = cache.acquire(tokens)
    lease.extend(tokens[lease.matched :])
    lease.commit()
    lease.release()


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("run"), PROMPTS),
            st.tuples(st.just("evict"), st.integers(1, 5)),
            st.tuples(st.just("note"), PROMPTS, TIERS, st.integers(0, 6), st.integers(0, 6)),
            st.tuples(st.just("lose"), TIERS),
            st.tuples(st.just("purge")),
        ),
        max_size=40,
    ),
    PROMPTS,
)
def test_what_is_known_was_said_of_that_very_block_and_is_not_out_of_date(steps, asked) -> None:  # type: ignore[no-untyped-def]
    cache = PrefixCache(BlockPool(64, BLOCK), "lru")
    clocks: dict[TierName, Clock] = {"host": Clock(), "disk": Clock(), "store": Clock()}
    cache.lies_over({name: clock.kept for name, clock in clocks.items()})
    said: dict[tuple[bytes, str], int] = {}
    for kind, *args in steps:
        if kind == "run":
            run(cache, args[0])
        elif kind == "evict":
            cache.evict(args[0])
        elif kind == "purge":
            cache.purge("default")
        elif kind == "lose":
            clocks[args[0]].now += 1
            clocks[args[0]].lost = clocks[args[0]].now
        else:
            tokens, tier, first, last = args
            moment = clocks[tier].now
            cache.found_below(tokens, "default", tier, moment, first, last)
            ready = cache.match(tokens) // BLOCK
            bits = cache.residency(tokens)
            for block in range(first, min(last, ready)):
                assert bits[block] & BITS[tier], "what was just said is known"
                said[tokens[: (block + 1) * BLOCK].tobytes(), tier] = moment
        cache.check_integrity()
        bits = cache.residency(asked)
        assert len(bits) == cache.match(asked) // BLOCK
        for block, found in enumerate(bits.tolist()):
            assert found & BITS["device"]
            for tier, clock in clocks.items():
                if found & BITS[tier]:
                    assert clock.kept(said[asked[: (block + 1) * BLOCK].tobytes(), tier])


def test_nothing_known_takes_no_room() -> None:
    assert split(None, 3) == (None, None)
    assert joined(None, 3, None) is None
    assert noted(None, "host", 0, 0, 5, always) is None
    one = noted(None, "host", 2, 3, 5, always)
    assert split(one, 2)[0] is None
    assert bits_of(split(one, 2)[1], 1, {"host": always}).tolist() == [BITS["host"]]


def test_parts_of_a_node_keep_their_tiers_through_a_cut_and_a_join() -> None:
    packed = noted(None, "host", 0, 4, 7, always)
    packed = noted(packed, "disk", 1, 2, 9, always)
    upper, lower = split(packed, 2)
    whole = joined(upper, 2, lower)
    kept = {"host": always, "disk": always}
    assert bits_of(whole, 6, kept).tolist() == bits_of(packed, 6, kept).tolist() == [2, 6, 2, 2, 0, 0]  # type: ignore[arg-type]


def test_of_joined_nodes_the_older_moment_holds() -> None:
    upper = noted(None, "host", 0, 1, 3, always)
    lower = noted(None, "host", 0, 1, 8, always)
    both = joined(upper, 1, lower)
    assert bits_of(both, 2, {"host": lambda moment: moment >= 3}).tolist() == [2, 2]
    assert bits_of(both, 2, {"host": lambda moment: moment >= 4}).tolist() == [0, 0]


@pytest.mark.parametrize("tiers", [(), ("host",), ("host", "disk")])
def test_only_blocks_that_every_tier_has_are_evicted_without_being_shown(tiers: tuple[TierName, ...]) -> None:
    cache = PrefixCache(BlockPool(16, BLOCK), "lru")
    cache.lies_over({"host": always, "disk": always})
    tokens = np.arange(4 * BLOCK, dtype=np.int32)
    run(cache, tokens)
    for tier in tiers:
        cache.found_below(tokens, "default", tier, 0, 2)
    shown: list[int] = []
    assert cache.evict(2, lambda _scope, _tokens, blocks: shown.append(len(blocks))) == 2
    assert shown == ([] if len(tiers) == 2 else [4])
    assert cache.evict(1, lambda _scope, _tokens, blocks: shown.append(len(blocks))) == 1
    assert shown[-1:] == [2], "the first two are in no tier"


def test_a_branch_in_the_middle_of_a_node_leaves_each_part_its_tiers() -> None:
    cache = PrefixCache(BlockPool(16, BLOCK), "lru")
    cache.lies_over({"host": always, "disk": always})
    tokens = np.arange(4 * BLOCK, dtype=np.int32)
    run(cache, tokens)
    cache.found_below(tokens, "default", "host", 5)
    cache.found_below(tokens, "default", "disk", 5, 3, 4)
    run(cache, np.concatenate([tokens[: 2 * BLOCK], tokens[:BLOCK]]))
    assert cache.residency(tokens).tolist() == [3, 3, 3, 7]
    cache.check_integrity()
    cache.evict(1)  # of the part that was used longest ago
    assert cache.residency(tokens).tolist() == [3, 3, 3]
    cache.check_integrity()


def test_what_is_out_of_date_does_not_make_newer_knowledge_so() -> None:
    cache, clock = PrefixCache(BlockPool(16, BLOCK), "lru"), Clock()
    cache.lies_over({"host": clock.kept})
    tokens = np.arange(4 * BLOCK, dtype=np.int32)
    run(cache, tokens)
    cache.found_below(tokens, "default", "host", 0)
    clock.lost = 1
    assert cache.residency(tokens).tolist() == [1] * 4
    cache.found_below(tokens, "default", "host", 1, 0, 2)
    assert cache.residency(tokens).tolist() == [3, 3, 1, 1]


def test_nodes_that_grow_together_again_keep_what_is_known_of_each() -> None:
    cache = PrefixCache(BlockPool(16, BLOCK), "lru")
    cache.lies_over({"host": always})
    tokens = np.arange(4 * BLOCK, dtype=np.int32)
    run(cache, tokens)
    run(cache, np.concatenate([tokens[: 2 * BLOCK], tokens[:BLOCK]]))
    cache.found_below(tokens, "default", "host", 5, 3, 4)
    run(cache, tokens)
    assert cache.evict(1) == 1  # the branch
    (root,) = cache._index.roots()
    assert len(list(nodes_below(root))) == 1
    assert cache.residency(tokens).tolist() == [1, 1, 1, 3]
