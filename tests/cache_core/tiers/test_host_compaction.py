"""Compaction of the host joins what belongs together and what is free, keeps nobody from anything, and ends."""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_core.block_header import BlockHeader
from cache_core.compaction_passes import TOLERATED
from cache_core.drop_reason import DropReason
from cache_core.metrics import RecordingObserver
from cache_core.tiers.host import NO_ROW, HostTier
from tests.cache_core.tiers.blocks import BLOCK, IDENTITY, OTHER, headers_of, payload, payloads, put, served

SIZE = 256


class Host:
    """A host tier, and what somebody does while it copies rows."""

    def __init__(self, blocks: int, **options: object) -> None:
        self.observer = RecordingObserver()
        self.tier = HostTier(blocks * SIZE, SIZE, BLOCK, observer=self.observer, **options)  # type: ignore[arg-type]

    def compact(self, limit: int = 4, after: Callable[[], None] = lambda: None) -> int:
        """All there is to do; says in how many steps."""
        for steps in range(1, 10_000):
            more = self.tier.compact(limit)
            self.tier.check_integrity()
            after()
            if not more:
                return steps
        raise AssertionError("it does not come to an end")

    def row(self, header: BlockHeader) -> int:
        row = self.tier._table.row(header.key)
        assert row is not None
        return row

    def rows(self, headers: Sequence[BlockHeader]) -> list[int]:
        return [self.row(header) for header in headers]

    def cuts(self) -> int:
        """Blocks that do not lie behind the one before them, though that is there."""
        table = self.tier._table
        rows = map(table.row, table.keys())
        return sum(table.parent_row(row) not in (None, row - 1) for row in rows if row is not None)

    def rank(self) -> tuple[int, int]:
        """Parts that do not lie together, and how high everything lies."""
        assert self.tier._pool is not None
        return self.cuts(), int(np.flatnonzero(self.tier._pool.holders > 0).sum())

    def fragmentation(self) -> float:
        assert self.tier._pool is not None
        return self.tier._pool.fragmentation()

    def free(self) -> int:
        assert self.tier._pool is not None
        return self.tier._pool.free_count

    @contextmanager
    def in_the_middle(self, act: Callable[[], None], always: bool = True) -> Iterator[None]:
        """`act` once, when rows have been copied and the table does not know it yet; `always`: that must happen."""
        compactor = self.tier._compactor
        assert compactor is not None
        switch, waiting = compactor._switch, [act]

        def after_the_copy(*args: object) -> int:
            if waiting:
                compactor._lock.release()  # as if it had come before the lock was taken
                try:
                    waiting.pop()()
                finally:
                    compactor._lock.acquire()
            return switch(*args)  # type: ignore[arg-type]

        compactor._switch = after_the_copy  # type: ignore[method-assign]
        try:
            yield
        finally:
            del compactor._switch  # type: ignore[attr-defined]
        assert not (waiting and always), "nothing was copied"


def holed(blocks: int = 64, size: int = 2) -> tuple[Host, list[list[BlockHeader]]]:
    """Every second chain of `size` blocks was deleted; the others."""
    it = Host(blocks)
    chains = [headers_of(1000 * number, size) for number in range(blocks // size)]
    for chain in chains:
        put(it.tier, chain, SIZE)
    for chain in chains[::2]:
        it.tier.delete([header.key for header in chain])
    return it, chains[1::2]


def scattered(count: int = 12, blocks: int = 40) -> tuple[Host, list[BlockHeader]]:
    """A chain whose blocks lie anywhere, each for itself, and half of the tier free."""
    it = Host(blocks)
    chain = headers_of(0, count)
    for place in np.random.default_rng(1).permutation(count).tolist():
        put(it.tier, headers_of(5000 + 100 * place, 1), SIZE)
        put(it.tier, chain[place : place + 1], SIZE)
    it.tier.delete([headers_of(5000 + 100 * place, 1)[0].key for place in range(0, count, 2)])
    assert it.cuts() >= count - 2
    return it, chain


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


def keys_of(headers: Sequence[BlockHeader]) -> list[bytes]:
    return [header.key for header in headers]


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


CHAINS = [headers_of(1000 * chain, 5, IDENTITY if chain % 2 else OTHER) for chain in range(4)]
ACTS = ["put", "get", "delete", "touch", "purge", "pin", "unpin", "reserve", "publish", "clear"]
STEPS = st.tuples(
    st.sampled_from([*ACTS, "compact", "compact"]), st.integers(0, 3), st.integers(0, 4), st.booleans()
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


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=40), st.sampled_from(ACTS), st.integers(0, 3))
def test_whatever_happens_before_and_while_rows_are_copied_only_right_bytes_are_served(
    steps: list[tuple[str, int, int, bool]], meanwhile: str, other: int
) -> None:
    it = Host(14)
    users = Users(it.tier)

    def in_between() -> None:
        users.act(meanwhile, CHAINS[other])
        users.check()

    for act, chain, start, interrupted in steps:
        headers = CHAINS[chain][start:]
        if act == "compact":
            with it.in_the_middle(in_between if interrupted else users.check, always=False):
                it.tier.compact(1 + start)
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
