"""The host tier serves right bytes or none, and every row is in one place."""

import logging
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_core.block_header import BlockHeader
from cache_core.drop_reason import DropReason
from cache_core.memory import anonymous_memory
from cache_core.metrics import RecordingObserver
from cache_core.tiers.host import NO_ROW, HostTier
from tests.cache_core.tiers.blocks import BLOCK, IDENTITY, OTHER, headers_of, payload, payloads, put, served

SIZE = 256


def host_of(blocks: int, **options: object) -> HostTier:
    return HostTier(blocks * SIZE, SIZE, BLOCK, **options)  # type: ignore[arg-type]


def keys_of(headers: list[BlockHeader]) -> list[bytes]:
    return [header.key for header in headers]


def test_what_was_put_comes_back_and_is_not_written_twice() -> None:
    tier, headers = host_of(8), headers_of(0, 5)
    assert put(tier, headers, SIZE) == 5
    assert put(tier, headers, SIZE) == 5
    assert served(tier, headers, SIZE) == 5
    stats = tier.stats()
    assert (stats.blocks, stats.stored, stats.used_bytes, stats.hits) == (5, 5, 5 * SIZE, 5)
    assert tier.contains(keys_of(headers_of(90, 1))).tolist() == [False]
    tier.check_integrity()


def test_parents_outlive_children_when_there_is_no_room() -> None:
    evicted: list[bytes] = []
    tier = host_of(6, on_evict=evicted.extend)
    old, new = headers_of(0, 4), headers_of(100, 4)
    put(tier, old, SIZE)
    put(tier, new, SIZE)
    assert evicted == keys_of([old[3], old[2]]), "the end of the chain goes first"
    assert tier.contains(keys_of(old)).tolist() == [True, True, False, False]
    assert tier.stats().evicted == 2


def test_what_was_used_lately_stays() -> None:
    tier = host_of(4)
    first, second = headers_of(0, 2), headers_of(100, 2)
    put(tier, first, SIZE)
    put(tier, second, SIZE)
    tier.touch(keys_of(first))
    put(tier, headers_of(200, 2), SIZE)
    assert tier.contains(keys_of([*first, *second])).tolist() == [True, True, False, False]


def test_a_pinned_row_is_neither_evicted_nor_overwritten_nor_lost_by_a_delete() -> None:
    tier, headers = host_of(2), headers_of(0, 2)
    put(tier, headers, SIZE)
    rows = tier.pin(headers)
    assert put(tier, headers_of(100, 2), SIZE) == 0, "everything is in use"
    assert tier.stats().drops == {DropReason.NO_ROOM: 2}
    assert tier.delete(keys_of(headers)) == 2
    assert put(tier, headers_of(100, 2), SIZE) == 0, "its bytes are still read"
    assert [tier.rows[row].tobytes() for row in rows] == [payload(header, SIZE) for header in headers]
    tier.unpin(rows)
    tier.check_integrity()
    assert put(tier, headers_of(100, 2), SIZE) == 2


def test_a_row_pinned_twice_is_held_twice() -> None:
    tier, headers = host_of(1), headers_of(0, 1)
    put(tier, headers, SIZE)
    once, twice = tier.pin(headers), tier.pin([headers[0], headers[0]])
    tier.unpin(twice)
    assert put(tier, headers_of(50, 1), SIZE) == 0
    tier.unpin(once)
    assert put(tier, headers_of(50, 1), SIZE) == 1


def test_a_reserved_block_is_seen_by_nobody_before_it_is_published_and_filled_once() -> None:
    tier, headers = host_of(4), headers_of(0, 3)
    first = tier.reserve(headers)
    second = tier.reserve(headers)
    assert (second.rows == NO_ROW).all()
    assert served(tier, headers, SIZE) == 0
    tier.rows[first.rows] = payloads(headers, SIZE)
    tier.publish(first, np.array([True, False, True]))
    tier.publish(second, np.zeros(3, dtype=np.bool_))
    assert tier.contains(keys_of(headers)).tolist() == [True, False, True]
    assert served(tier, headers, SIZE) == 2
    tier.check_integrity()


def test_purge_forgets_one_identity_and_what_of_it_is_being_filled() -> None:
    tier = host_of(8)
    gone, stays, filling = headers_of(0, 2), headers_of(0, 2, OTHER), headers_of(100, 1)
    put(tier, gone, SIZE)
    put(tier, stays, SIZE)
    reservation = tier.reserve(filling)
    assert tier.purge(IDENTITY) == 2
    tier.publish(reservation, np.array([True]))
    assert served(tier, [*gone, *filling], SIZE) == 0
    assert served(tier, stays, SIZE) == 2
    assert put(tier, gone, SIZE) == 2, "what is stored after a purge is served"
    tier.check_integrity()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("identity", DropReason.WRONG_IDENTITY),
        ("parent", DropReason.WRONG_BLOCK),
        ("tokens", DropReason.WRONG_BLOCK),
    ],
)
def test_a_block_that_is_not_the_one_asked_for_is_dropped(change: str, reason: DropReason) -> None:
    tier, (right,) = host_of(2), headers_of(0, 1)
    put(tier, [right], SIZE)
    fields = {"identity": right.identity, "parent": right.parent, "tokens": right.tokens}
    other = fields[change][:-1] + b"\xff"  # the beginning of an identity is in the key
    wrong = BlockHeader(**(fields | {change: other}), own=right.own)
    assert served(tier, [wrong], SIZE) == 0
    assert tier.stats().drops == {reason: 1}
    tier.check_integrity()


def test_with_checksums_a_flipped_bit_is_never_served() -> None:
    tier, headers = host_of(4, checksums=True), headers_of(0, 3)
    put(tier, headers, SIZE)
    row = tier.pin(headers[1:2])
    tier.unpin(row)
    tier.rows[row[0], 77] ^= 4
    assert served(tier, headers, SIZE) == 2
    assert tier.stats().drops == {DropReason.CHECKSUM: 1}
    tier.check_integrity()


def test_memory_refused_turns_the_tier_off_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(size: int) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
        raise OSError(12, "Cannot allocate memory")

    observer = RecordingObserver()
    with caplog.at_level(logging.WARNING):
        tier = host_of(4, allocate=refuse, observer=observer)
    headers = headers_of(0, 2)
    assert put(tier, headers, SIZE) == 0
    assert served(tier, headers, SIZE) == 0
    assert tier.refusal is not None
    assert "Cannot allocate memory" in tier.refusal
    assert "host tier is off" in caplog.text
    assert tier.stats().capacity_bytes == 0
    tier.check_integrity()


def test_more_than_any_machine_has_is_a_refusal_too() -> None:
    tier = HostTier(1 << 60, SIZE, BLOCK, allocate=anonymous_memory)
    assert tier.num_blocks == 0
    assert tier.refusal


def test_buffers_of_another_size_are_counted_drops() -> None:
    tier, headers = host_of(2), headers_of(0, 1)
    assert put(tier, headers, SIZE - 1) == 0
    assert put(tier, headers, SIZE) == 1
    assert tier.get(headers, [memoryview(bytearray(SIZE + 1))]).tolist() == [False]
    assert tier.stats().drops == {DropReason.WRONG_SIZE: 2}


def test_closing_forgets_everything_but_lets_readers_finish() -> None:
    tier, headers = host_of(4), headers_of(0, 2)
    put(tier, headers, SIZE)
    rows, filling = tier.pin(headers), tier.reserve(headers_of(50, 1))
    tier.close()
    assert served(tier, headers, SIZE) == 0
    assert tier.rows[rows[0]].tobytes() == payload(headers[0], SIZE)
    tier.unpin(rows)
    tier.publish(filling, np.array([True]))
    assert served(tier, headers_of(50, 1), SIZE) == 0
    tier.check_integrity()


CHAINS = [headers_of(1000 * chain, 4, IDENTITY if chain % 2 else OTHER) for chain in range(4)]
STEPS = st.tuples(
    st.sampled_from(
        ["put", "get", "delete", "touch", "purge", "pin", "unpin", "reserve", "publish", "compact"]
    ),
    st.integers(0, 3),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_whatever_happens_only_right_bytes_are_served_and_rows_add_up(steps: list[tuple[str, int]]) -> None:
    tier = host_of(7, checksums=True)
    pins, reservations = [], []
    for step, chain in steps:
        headers = CHAINS[chain]
        if step == "put":
            put(tier, headers, SIZE)
        elif step == "get":
            served(tier, headers, SIZE)
        elif step == "delete":
            tier.delete(keys_of(headers[2:]))
        elif step == "touch":
            tier.touch(keys_of(headers))
        elif step == "purge":
            tier.purge(headers[0].identity)
        elif step == "pin":
            pins.append((headers, tier.pin(headers)))
        elif step == "unpin" and pins:
            tier.unpin(pins.pop()[1])
        elif step == "compact":
            tier.compact(1 + chain)
        elif step == "reserve":
            reservations.append(tier.reserve(headers))
        elif step == "publish" and reservations:
            one = reservations.pop()
            filled = one.rows != NO_ROW
            tier.rows[one.rows[filled]] = payloads(one.headers, SIZE)[filled]
            tier.publish(one, filled)
        tier.check_integrity()
        for held, rows in pins:
            for header, row in zip(held, rows.tolist(), strict=True):
                assert row == NO_ROW or tier.rows[row].tobytes() == payload(header, SIZE)


def test_many_threads_see_only_right_bytes() -> None:
    tier = host_of(10)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        try:
            for _ in range(150):
                headers = CHAINS[random.integers(4)][: random.integers(1, 5)]
                put(tier, headers, SIZE)
                served(tier, headers, SIZE)
                if random.random() < 0.1:
                    tier.purge(headers[0].identity)
        except BaseException as failure:  # noqa: BLE001  shown by the test's own thread
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    tier.check_integrity()


def test_a_cleared_tier_is_empty_but_for_what_is_read_now() -> None:
    tier, headers = host_of(8), headers_of(0, 5)
    put(tier, headers, SIZE)
    rows = tier.pin(headers[:2])
    assert tier.clear() == 5
    assert not tier.contains(keys_of(headers)).any()
    assert put(tier, headers_of(100, 8), SIZE) == 6, "two rows are read still"
    tier.unpin(rows)
    assert put(tier, headers_of(200, 2), SIZE) == 2
    tier.check_integrity()


def test_a_block_whose_filling_hangs_can_be_filled_by_another_and_is_there_once() -> None:
    tier, headers = host_of(8), headers_of(0, 3)
    hung = tier.reserve(headers)
    assert put(tier, headers, SIZE) == 0, "it is being filled"
    tier.let_others_fill(hung)
    assert put(tier, headers[:2], SIZE) == 2
    tier.check_integrity()
    tier.rows[hung.rows] = 7  # late, and of no use
    tier.publish(hung, np.array([True, True, False]))
    assert served(tier, headers, SIZE) == 2
    tier.check_integrity()
    assert put(tier, headers_of(100, 8), SIZE) == 8, "no row is held any more"


def test_what_hung_and_came_after_all_is_there_if_nobody_else_brought_it() -> None:
    tier, headers = host_of(8), headers_of(0, 3)
    hung = tier.reserve(headers)
    tier.let_others_fill(hung)
    other = tier.reserve(headers[:1])
    for header, row in zip(headers, hung.rows, strict=True):
        tier.rows[row] = np.frombuffer(payload(header, SIZE), dtype=np.uint8)
    tier.publish(hung, np.ones(3, dtype=np.bool_))
    assert tier.contains(keys_of(headers)).tolist() == [False, True, True]
    tier.rows[other.rows[0]] = np.frombuffer(payload(headers[0], SIZE), dtype=np.uint8)
    tier.publish(other, np.ones(1, dtype=np.bool_))
    assert served(tier, headers, SIZE) == 3
    tier.check_integrity()


def test_what_hung_over_a_purge_is_not_there_when_it_comes() -> None:
    tier, headers = host_of(8), headers_of(0, 3)
    hung = tier.reserve(headers)
    tier.let_others_fill(hung)
    tier.purge(headers[0].identity)
    tier.publish(hung, np.ones(3, dtype=np.bool_))
    assert not tier.contains(keys_of(headers)).any()
    tier.check_integrity()


def test_token_ids_of_what_is_gone_are_not_kept() -> None:
    tier, gone, kept = host_of(8), headers_of(1, 3), headers_of(300, 2)
    put(tier, gone, SIZE)
    put(tier, kept, SIZE)
    tier.delete(keys_of(gone))
    while tier.compact():
        pass
    held = tier._table._tokens
    assert sorted(row.tobytes() for row in held if row.any()) == sorted(header.tokens for header in kept)
    tier.purge(kept[0].identity)
    assert not held.any()


def test_rows_that_are_read_alone_tell_nothing_of_how_they_lie() -> None:
    observer = RecordingObserver()
    whole, apart = host_of(8, observer=observer), host_of(8, observer=observer, apart=True)
    for tier in (whole, apart):
        put(tier, headers_of(1, 6), SIZE)
    whole.stats()
    apart.delete(keys_of(headers_of(1, 6))[:3:2])
    apart.stats()
    assert observer.record().fragmentation == {"host": 0.0}
