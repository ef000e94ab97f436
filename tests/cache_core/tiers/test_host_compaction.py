"""Compaction of the host joins what belongs together and what is free, changes nothing else, and ends."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_core.block_header import BlockHeader
from cache_core.compaction_passes import TOLERATED
from cache_core.tiers.host import HostTier
from tests.cache_core.tiers.blocks import BLOCK, IDENTITY, OTHER, headers_of, payload, put, served
from tests.cache_core.tiers.compacted_host import SIZE, Host, holed, keys_of, scattered


def test_free_rows_between_chains_become_one_run() -> None:
    it, chains = holed()
    assert it.fragmentation() == pytest.approx(1 - 2 / 32)
    it.compact()
    assert it.fragmentation() == 0
    assert it.tier.stats().compacted == 16, "the upper half goes into the lower half's holes, each row once"
    assert it.observer.record().compacted_blocks == {"host": 16}
    assert it.observer.record().fragmentation == {"host": 0.0}
    for chain in chains:
        assert served(it.tier, chain, SIZE) == 2


def test_a_chain_in_parts_is_put_together_in_its_order() -> None:
    it, chain = scattered()
    while it.cuts():
        assert it.tier.compact(4)
    assert it.tier.stats().compacted == len(chain), "each block once, wherever one began"
    it.compact()
    assert it.cuts() == 0
    rows = it.rows(chain)
    assert rows == list(range(rows[0], rows[0] + len(chain)))
    assert served(it.tier, chain, SIZE) == len(chain)


def test_what_goes_on_is_put_behind_its_parent_where_there_is_room() -> None:
    it = Host(40)
    chain = headers_of(0, 12)
    put(it.tier, chain[:10], SIZE)
    put(it.tier, headers_of(1000, 2), SIZE)
    put(it.tier, headers_of(2000, 6), SIZE)
    put(it.tier, chain[10:], SIZE)
    before = it.rows(chain[:10])
    it.tier.delete([header.key for header in headers_of(1000, 2)])
    it.compact()
    assert it.rows(chain) == [*before, 10, 11]
    assert it.tier.stats().compacted == 2


def test_new_blocks_go_right_behind_their_parent() -> None:
    it = Host(20)
    chain = headers_of(0, 4)
    put(it.tier, headers_of(1000, 3), SIZE)
    put(it.tier, chain[:2], SIZE)
    it.tier.delete([header.key for header in headers_of(1000, 3)])
    put(it.tier, chain[2:], SIZE)
    assert it.rows(chain) == [3, 4, 5, 6], "and not into the hole that is as good"


def test_of_two_branches_one_lies_behind_the_fork_and_the_other_in_one_piece() -> None:
    it, chain = scattered(6)
    fork = chain[2]
    other = [*chain[:3]]
    for number in range(3):
        tokens = np.arange(900 + 4 * number, 904 + 4 * number, dtype=np.int32).tobytes()
        other.append(BlockHeader(IDENTITY, other[-1].own, bytes([number + 1]) * 32, tokens))
        put(it.tier, headers_of(7000 + 100 * number, 1), SIZE)
        put(it.tier, other[-1:], SIZE)
    it.compact()
    assert it.cuts() == 1
    assert it.row(fork) + 1 in (it.row(chain[3]), it.row(other[3]))
    assert served(it.tier, [*chain, *other[3:]], SIZE) == 9


def test_rows_that_are_read_or_filled_stay_where_they_are() -> None:
    it, chains = holed()
    held = it.tier.pin(chains[-1])
    filled = it.tier.reserve(headers_of(90_000, 3))
    rows = held.tolist(), filled.rows.tolist()
    it.compact()
    assert it.tier.stats().compacted > 0
    assert it.rows(chains[-1]) == rows[0]
    for header, row in zip(filled.headers, filled.rows.tolist(), strict=True):
        it.tier.rows[row] = np.frombuffer(payload(header, SIZE), dtype=np.uint8)
    it.tier.publish(filled, np.ones(3, dtype=np.bool_))
    assert it.rows(filled.headers) == rows[1]
    assert served(it.tier, filled.headers, SIZE) == 3
    it.tier.unpin(held)
    it.compact()
    assert it.rows(chains[-1]) != rows[0], "now that nobody reads it, it moves"
    assert it.fragmentation() <= TOLERATED
    assert served(it.tier, chains[-1], SIZE) == 2


def test_moving_is_no_use_and_changes_nobodys_turn() -> None:
    dice = random.Random(3)
    it = Host(64, scope_share=0.3)
    chains = [headers_of(1000 * number, 4, OTHER if number < 6 else IDENTITY) for number in range(16)]
    parts = [chain[at : at + 2] for at in (0, 2) for chain in dice.sample(chains, len(chains))]
    for part in parts:
        put(it.tier, part, SIZE)
    for chain in dice.sample(chains, 5):
        it.tier.delete(keys_of(chain[2:]))
    for chain in dice.sample(chains, 9):
        it.tier.touch(keys_of(chain))

    def seen() -> tuple[object, ...]:
        there = it.tier.contains([header.key for chain in chains for header in chain]).tolist()
        stamps = [it.tier.stamp(keys_of(chain[:2])) for chain in chains]
        kept = [stamp is not None and it.tier.kept_since(stamp) for stamp in stamps]
        counts = [
            getattr(it.tier.stats(), name) for name in ("hits", "misses", "stored", "evicted", "blocks")
        ]
        return it.tier.coldest(64), there, stamps, kept, counts

    before = seen()
    it.compact()
    assert it.tier.stats().compacted > 10
    assert seen() == before
    new = headers_of(900_000, 30)
    put(it.tier, new, SIZE)
    gone = [header.key for header in before[0][: 30 - 10]]  # type: ignore[index]
    assert not it.tier.contains(gone).any(), "and so they go"
    it.tier.check_integrity()


def test_where_nothing_is_to_be_gained_nothing_is_moved_or_looked_at_again() -> None:
    it = Host(64)
    put(it.tier, headers_of(0, 10), SIZE)
    it.compact()
    assert it.tier.stats().compacted == 0
    assert it.tier._compactor is not None
    it.tier._compactor._next_move = None  # type: ignore[assignment, method-assign]  # whoever looks again fails
    assert not it.tier.compact()
    served(it.tier, headers_of(0, 10), SIZE)
    it.tier.touch(keys_of(headers_of(0, 10)))
    assert not it.tier.compact(), "reads change nothing"


@pytest.mark.parametrize("what", ["published", "removed", "let go"])
def test_what_changes_something_wakes_it(what: str) -> None:
    it, chains = holed()
    high = [header for chain in chains[-6:] for header in chain]
    pinned = it.tier.pin(high) if what == "let go" else None
    it.compact()
    assert not it.tier.compact()
    before = it.tier.stats().compacted
    if pinned is not None:
        it.tier.unpin(pinned)
    elif what == "removed":
        it.tier.delete([header.key for chain in chains[:8] for header in chain])
    else:
        put(it.tier, headers_of(800_000, 20), SIZE)
        it.tier.check_integrity()
    assert it.tier.compact()
    it.compact()
    assert it.fragmentation() <= TOLERATED
    assert (it.tier.stats().compacted > before) == (what != "published")


def test_a_tier_that_is_full_or_off_has_nothing_to_do() -> None:
    it = Host(4)
    put(it.tier, headers_of(0, 4), SIZE)
    assert not it.tier.compact()
    off = HostTier(1, SIZE, BLOCK)
    assert not off.compact()


@pytest.mark.parametrize("length", [1, 9, 150])
def test_one_step_looks_at_few_rows_however_many_there_are(length: int) -> None:
    it = Host(9000)
    chain = headers_of(0, 2000)
    put(it.tier, chain, SIZE)
    for number in range(3000 // length):
        put(it.tier, headers_of(100_000 + 1000 * number, length), SIZE)
    hole = headers_of(90_000, 1)
    put(it.tier, hole, SIZE)
    put(it.tier, headers_of(50_000, it.free()), SIZE)
    it.tier.delete(keys_of(chain[500:1000] + hole + chain[1100:1400]))
    table, looks = it.tier._table, 0
    parent_key = table._parent_key

    def counted(row: int) -> bytes:
        nonlocal looks
        looks += 1
        return parent_key(row)

    table._parent_key = counted  # type: ignore[method-assign]
    most = 0
    while True:
        looks = 0
        more = it.tier.compact(8)
        most = max(most, looks)
        if not more:
            break
    assert 128 <= most < 4 * 128
    assert it.fragmentation() <= TOLERATED


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_whatever_lies_where_it_ends_with_less_in_parts(seed: int, limit: int) -> None:
    dice = random.Random(seed)
    it = Host(dice.randint(8, 100))
    chains = [headers_of(1000 * number, dice.randint(1, 12)) for number in range(12)]
    pins = []
    for _ in range(60):
        chain = dice.choice(chains)
        start = dice.randrange(len(chain))
        some = chain[start : start + dice.randint(1, 5)]
        if dice.random() < 0.6:
            put(it.tier, some, SIZE)
        else:
            it.tier.delete(keys_of(some))
        if dice.random() < 0.05:
            pins.append(it.tier.pin(some))
    for rows in pins[dice.randint(0, 2) :]:
        it.tier.unpin(rows)
    held = len(pins) > 0
    there = [header for chain in chains for header in chain if it.tier.contains([header.key])[0]]
    ranks = [it.rank()]
    compactor = it.tier._compactor
    assert compactor is not None

    def after() -> None:
        if compactor._move is None:
            ranks.append(it.rank())

    it.compact(limit, after)
    assert ranks == sorted(ranks, reverse=True), "a whole move made it worse"
    assert served(it.tier, there, SIZE) == len(there)
    if not held:
        assert it.fragmentation() <= TOLERATED
