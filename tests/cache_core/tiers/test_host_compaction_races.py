"""Whoever uses the host while rows are copied is not kept from it: whoever comes first wins, and bytes stay right."""

import random
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_core.block_header import BlockHeader
from cache_core.compaction_passes import TOLERATED
from cache_core.drop_reason import DropReason
from cache_core.tiers.host import NO_ROW, HostTier
from tests.cache_core.tiers.blocks import BLOCK, IDENTITY, OTHER, headers_of, payload, payloads, put, served
from tests.cache_core.tiers.compacted_host import SIZE, Host, holed, keys_of


def copied(it: Host) -> list[BlockHeader]:
    """The blocks whose copy is just done."""
    compactor = it.tier._compactor
    assert compactor is not None
    assert compactor._copy is not None
    keys = [it.tier._table.key_in(row) for row in compactor._copy.sources.tolist()]
    return [header for key in keys if key is not None and (header := it.tier.header(key)) is not None]


def test_who_pins_a_row_that_was_just_copied_keeps_it() -> None:
    it, _ = holed()
    pins: list[tuple[list[BlockHeader], list[int], np.ndarray[tuple[int], np.dtype[np.int32]]]] = []

    def pin() -> None:
        headers = copied(it)[1:]
        pins.append((headers, it.rows(headers), it.tier.pin(headers)))

    with it.in_the_middle(pin):
        it.compact()
    ((headers, before, rows),) = pins
    assert len(headers) == 1
    assert it.rows(headers) == before == rows.tolist()
    assert it.tier.rows[rows[0]].tobytes() == payload(headers[0], SIZE)
    assert it.free() == 32
    it.tier.unpin(rows)
    it.compact()
    assert it.rows(headers) != before
    assert it.fragmentation() == 0


def test_who_reads_and_is_done_before_the_switch_does_not_hinder_it() -> None:
    it, _ = holed()
    seen: list[BlockHeader] = []

    def read() -> None:
        seen.extend(copied(it))
        assert served(it.tier, seen, SIZE) == len(seen) == 2

    with it.in_the_middle(read):
        it.compact()
    assert served(it.tier, seen, SIZE) == 2
    assert it.tier.stats().compacted == 16


@pytest.mark.parametrize("how", ["delete", "purge", "clear", "close"])
def test_what_is_removed_while_it_is_copied_stays_removed(how: str) -> None:
    it, chains = holed()
    gone: list[BlockHeader] = []

    def remove() -> None:
        gone.extend(copied(it))
        act = {
            "delete": lambda: it.tier.delete(keys_of(gone)),
            "purge": lambda: it.tier.purge(IDENTITY),
            "clear": it.tier.clear,
            "close": it.tier.close,
        }
        act[how]()
        it.tier.check_integrity()

    with it.in_the_middle(remove):
        it.compact()
    assert len(gone) == 2
    assert not it.tier.contains(keys_of(gone)).any()
    assert served(it.tier, gone, SIZE) == 0
    left = [header for chain in chains for header in chain if header not in gone]
    assert served(it.tier, left, SIZE) == (len(left) if how == "delete" else 0)
    assert it.free() == (34 if how == "delete" else 64)


def test_what_is_evicted_while_it_is_copied_is_gone() -> None:
    it, _ = holed()
    gone: list[BlockHeader] = []
    new = headers_of(500_000, 62)  # all but the two rows that are copied to

    def crowd() -> None:
        gone.extend(copied(it))
        put(it.tier, new, SIZE)
        it.tier.check_integrity()

    with it.in_the_middle(crowd):
        it.compact()
    assert not it.tier.contains(keys_of(gone)).any()
    assert it.tier.evicted_lately(keys_of(gone)).all()
    assert served(it.tier, new, SIZE) == 62


def test_a_block_that_came_anew_into_the_row_it_was_copied_from_is_not_overwritten_by_the_copy() -> None:
    it, _ = holed()
    other = np.full((2, SIZE), 77, dtype=np.uint8)  # as if computed once more, a little otherwise
    seen: list[BlockHeader] = []

    def again() -> None:
        seen.extend(copied(it))
        rows = it.rows(seen)
        rest = it.tier.reserve(headers_of(700_000, it.free()))
        it.tier.delete(keys_of(seen))
        it.tier.put(seen, other)
        it.tier.publish(rest, np.zeros(len(rest.rows), dtype=np.bool_))
        assert it.rows(seen) == rows, "otherwise this shows nothing"

    with it.in_the_middle(again):
        it.compact()
    out = np.zeros((2, SIZE), dtype=np.uint8)
    assert it.tier.get(seen, out).all()
    assert (out == 77).all()
    assert it.tier.stats().drops == {}


def test_what_is_published_while_rows_are_copied_is_there() -> None:
    it, chains = holed()
    new = headers_of(500_000, 3)
    with it.in_the_middle(lambda: put(it.tier, new, SIZE) and None):
        it.compact()
    assert served(it.tier, [*new, *(header for chain in chains for header in chain)], SIZE) == 35


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_flipped_bit_is_still_found_after_its_row_was_moved(when: str) -> None:
    it, chains = holed()
    moves = chains[-1]
    compactor = it.tier._compactor
    assert compactor is not None
    before = it.rows(moves)
    if when == "before":
        it.tier.rows[before[0], 77] ^= 4
        it.compact()
    else:

        def flip() -> None:
            assert compactor._copy is not None
            it.tier.rows[compactor._copy.targets[0], 77] ^= 4

        with it.in_the_middle(flip):
            it.compact()
    assert it.rows(moves) != before
    assert served(it.tier, moves, SIZE) == 1
    assert it.tier.stats().drops == {DropReason.CHECKSUM: 1}


def test_what_came_into_the_rows_of_a_half_moved_chain_is_not_moved_on() -> None:
    it = Host(40)
    chain = headers_of(0, 24)
    put(it.tier, headers_of(1000, 6), SIZE)
    put(it.tier, chain, SIZE)
    it.tier.delete(keys_of(headers_of(1000, 6)))
    put(it.tier, headers_of(2000, 9), SIZE)
    while it.tier.stats().compacted < 4:
        it.tier.compact(4)
    assert it.cuts() == 1, "it is half moved"
    rows = it.rows(chain[4:])
    it.tier.delete(keys_of(chain[4:]))
    other = headers_of(3000, 20)
    goal = it.tier.reserve(headers_of(4000, 6))  # is left free, where it was to go
    put(it.tier, other[::-1], SIZE)
    it.tier.publish(goal, np.zeros(6, dtype=np.bool_))
    assert set(it.rows(other)) == set(rows)
    it.tier.compact(4)
    assert it.tier.stats().compacted == 4
    it.compact()
    assert served(it.tier, [*chain[:4], *other], SIZE) == 24


class Watching:
    """A tier's memory, that is used by others for every row that is copied."""

    def __init__(self, it: Host, headers: list[BlockHeader]) -> None:
        self.it, self.headers = it, headers
        self.copies = 0

    def __getitem__(self, row: int) -> object:
        return self.it.tier.rows[row]

    def __setitem__(self, row: int, value: object) -> None:
        assert not self.it.tier._lock.locked(), "who comes now would wait for the copy"
        compactor = self.it.tier._compactor
        assert compactor is not None
        assert compactor._one_step.locked(), "a second step would not know of this one"
        assert served(self.it.tier, self.headers, SIZE) == len(self.headers)
        self.it.tier.check_integrity()
        self.it.tier.rows[row] = value
        self.copies += 1


def test_no_lock_is_held_while_bytes_are_copied_and_others_use_the_tier() -> None:
    it, chains = holed()
    compactor = it.tier._compactor
    assert compactor is not None
    watching = compactor._rows = Watching(it, chains[0])  # type: ignore[assignment]
    it.compact()
    assert watching.copies == it.tier.stats().compacted == 16  # type: ignore[attr-defined]


class Refusing:
    """Memory that takes nothing."""

    def __getitem__(self, row: int) -> int:
        return row

    def __setitem__(self, row: int, value: object) -> None:
        raise OSError("memory that takes no copies")


def test_a_failing_copy_loses_nothing() -> None:
    it, chains = holed()
    compactor = it.tier._compactor
    assert compactor is not None
    compactor._rows = Refusing()  # type: ignore[assignment]
    with pytest.raises(OSError, match="takes no copies"):
        it.compact()
    it.tier.check_integrity()
    assert it.free() == 32
    compactor._rows = it.tier.rows
    it.tier.delete(keys_of(chains[0]))
    it.compact()
    assert it.fragmentation() <= TOLERATED
    assert served(it.tier, chains[-1], SIZE) == 2


CHAINS = [headers_of(1000 * chain, 5, IDENTITY if chain % 2 else OTHER) for chain in range(4)]


ACTS = ["put", "get", "delete", "touch", "purge", "pin", "unpin", "reserve", "publish", "clear"]


STEPS = st.tuples(
    st.sampled_from([*ACTS, "put", "compact", "compact", "compact"]),
    st.integers(0, 3),
    st.integers(0, 4),
    st.sampled_from([None, *ACTS]),
)


class Users:
    """Whoever uses the tier, and sees right bytes alone."""

    def __init__(self, tier: HostTier) -> None:
        self.tier = tier
        self.pins: list[tuple[list[BlockHeader], np.ndarray[tuple[int], np.dtype[np.int32]]]] = []
        self.reservations: list[object] = []

    def act(self, act: str, headers: list[BlockHeader]) -> None:
        if act == "put":
            put(self.tier, headers, SIZE)
        elif act == "get":
            served(self.tier, headers, SIZE)
        elif act == "delete":
            self.tier.delete(keys_of(headers))
        elif act == "touch":
            self.tier.touch(keys_of(headers))
        elif act == "purge":
            self.tier.purge(headers[0].identity)
            assert not self.tier.contains(keys_of(headers)).any()
        elif act == "pin":
            self.pins.append((headers, self.tier.pin(headers)))
        elif act == "unpin" and self.pins:
            self.tier.unpin(self.pins.pop()[1])
        elif act == "clear":
            self.tier.clear()
        elif act == "reserve":
            self.reservations.append(self.tier.reserve(headers))
        elif act == "publish" and self.reservations:
            one: Any = self.reservations.pop()
            filled = one.rows != NO_ROW
            self.tier.rows[one.rows[filled]] = payloads(one.headers, SIZE)[filled]
            self.tier.publish(one, filled)

    def check(self) -> None:
        self.tier.check_integrity()
        for held, rows in self.pins:
            for header, row in zip(held, rows.tolist(), strict=True):
                assert row == NO_ROW or self.tier.rows[row].tobytes() == payload(header, SIZE)


def compact(it: Host, users: Users, limit: int, meanwhile: str | None, headers: list[BlockHeader]) -> None:
    """One step, in the middle of which perhaps somebody does something: what is there, and since when, is the same."""
    left = it.uses()

    def in_between() -> None:
        nonlocal left
        if meanwhile is not None:
            users.act(meanwhile, headers)
        users.check()
        left = it.uses()

    with it.in_the_middle(in_between, always=False):
        it.tier.compact(limit)
    assert it.uses() == left


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_whatever_happens_before_and_while_rows_are_copied_only_right_bytes_are_served(
    steps: list[tuple[str, int, int, str | None]],
) -> None:
    it = Host(14)
    users = Users(it.tier)
    for act, chain, start, meanwhile in steps:
        headers = CHAINS[chain][start:]
        if act == "compact":
            compact(it, users, 1 + start, meanwhile, headers)
        else:
            users.act(act, headers)
        users.check()
    assert it.tier.stats().drops.keys() <= {DropReason.NO_ROOM}
    for _, rows in users.pins:
        it.tier.unpin(rows)
    it.compact()


def test_threads_that_use_the_tier_while_it_is_compacted_see_only_right_bytes() -> None:
    tier = HostTier(24 * SIZE, SIZE, BLOCK)
    failures: list[BaseException] = []
    done = threading.Event()

    def work(seed: int) -> None:
        dice = random.Random(seed)
        users = Users(tier)
        try:
            for _ in range(400):
                chain = dice.choice(CHAINS)
                start = dice.randrange(len(chain))
                act = dice.choices(ACTS, [6, 6, 3, 2, 0.3, 3, 3, 3, 4, 0.2])[0]
                if act == "purge":  # another thread may store it again at once
                    tier.purge(chain[0].identity)
                else:
                    users.act(act, chain[start : start + dice.randint(1, 4)])
                for held, rows in users.pins:
                    for header, row in zip(held, rows.tolist(), strict=True):
                        assert row == NO_ROW or tier.rows[row].tobytes() == payload(header, SIZE)
            for _, rows in users.pins:
                tier.unpin(rows)
            for one in users.reservations:
                tier.publish(one, np.zeros(len(one.rows), dtype=np.bool_))  # type: ignore[attr-defined, arg-type]
        except BaseException as failure:  # noqa: BLE001  shown by the test's own thread
            failures.append(failure)

    def tidy() -> None:
        try:
            while not done.wait(0.0001):
                while tier.compact(3) and not done.is_set():
                    pass
                tier.check_integrity()
        except BaseException as failure:  # noqa: BLE001
            failures.append(failure)

    tidying = [threading.Thread(target=tidy) for _ in range(2)]
    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in (*tidying, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    done.set()
    for thread in tidying:
        thread.join()
    assert not failures
    assert tier.stats().compacted > 0
    assert tier.stats().drops.keys() <= {DropReason.NO_ROOM, DropReason.PURGED}
    tier.check_integrity()
    tier.clear()
    assert tier._pool is not None
    assert tier._pool.free_count == 24
