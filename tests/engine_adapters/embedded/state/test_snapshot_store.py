"""The deepest snapshot that is a prefix is found, within a bound of bytes and of its scope."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from cache_core import RetentionHints
from engine_adapters.embedded.state.auxiliary import AuxiliaryState, Snapshot
from engine_adapters.embedded.state.snapshot_store import SnapshotStore, Tokens

ROW = 16  # bytes


class ManualClock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def row(length: int) -> AuxiliaryState:
    return AuxiliaryState(Snapshot(length, (torch.full((1, 4), float(length)),)))


def text(*ids: int) -> Tokens:
    return np.array(ids, dtype=np.int32)


def test_a_snapshot_is_found_again_and_is_a_copy() -> None:
    store, state = SnapshotStore(10 * ROW, ROW), row(3)
    store.keep(text(1, 2, 3), "a", state)
    assert state.tensors is not None
    state.tensors[0].zero_()
    found = store.find(text(1, 2, 3, 4), "a", 4)
    assert found is not None
    assert found.length == 3
    assert found.tensors[0].tolist() == [[3.0] * 4]
    started = AuxiliaryState(found)
    assert started.tensors is not None
    started.tensors[0].zero_()
    assert found.tensors[0].tolist() == [[3.0] * 4], "whoever starts from it has a row of its own"


def test_the_least_recently_used_goes_first_and_bytes_stay_bounded() -> None:
    store = SnapshotStore(2 * ROW + 5, ROW)
    store.keep(text(1), "a", row(1))
    store.keep(text(2), "a", row(1))
    assert store.find(text(1), "a", 1) is not None
    store.keep(text(3), "a", row(1))
    assert (store.nbytes, store.evicted) == (2 * ROW, 1)
    assert [store.deepest(text(i), "a", 1) for i in (1, 2, 3)] == [1, 0, 1]


def test_a_store_with_room_for_none_keeps_none() -> None:
    store = SnapshotStore(ROW - 1, ROW)
    store.keep(text(1), "a", row(1))
    assert len(store) == 0


def test_scopes_are_apart_and_flushed_apart() -> None:
    store = SnapshotStore(10 * ROW, ROW)
    for scope in ("a", "b"):
        store.keep(text(1, 2), scope, row(2))
    store.keep(text(1), "b", row(1))
    assert store.deepest(text(1, 2), "c", 2) == 0
    assert store.flush("b") == 2
    assert [store.deepest(text(1, 2), scope, 2) for scope in ("a", "b")] == [2, 0]
    assert store.flush() == 1
    assert store.nbytes == 0


def order(store: SnapshotStore, *names: int) -> list[int]:
    """Which of these go, in that order, when others come."""
    gone: list[int] = []
    for new in range(100, 100 + len(names)):
        before = {name for name in names if store.deepest(text(name), "a", 1)}
        store.keep(text(new), "a", row(1))
        gone += [name for name in names if name in before and not store.deepest(text(name), "a", 1)]
    return gone


def test_who_wishes_to_stay_goes_last_and_who_wishes_to_go_first() -> None:
    now = ManualClock()
    store = SnapshotStore(8 * ROW, ROW, now)
    for name in range(1, 9):
        store.keep(text(name), "a", row(1))
    store.retain(text(1), "a", RetentionHints(pin_s=100))
    store.retain(text(7, 7), "a", RetentionHints(priority=-1))
    store.retain(text(8), "a", RetentionHints(ttl_s=5))
    store.retain(text(9), "a", RetentionHints(pin_s=100))  # there is none
    now.seconds = 6
    assert order(store, *range(1, 9))[:3] == [7, 8, 2]
    assert store.deepest(text(1), "a", 1) == 1
    now.seconds = 101
    assert order(store, 1) == [1]


def test_what_is_used_again_does_not_go_before_others() -> None:
    now = ManualClock()
    store = SnapshotStore(2 * ROW, ROW, now)
    store.keep(text(1), "a", row(1))
    store.keep(text(2), "a", row(1))
    store.retain(text(2), "a", RetentionHints(ttl_s=5))
    assert store.find(text(2), "a", 1) is not None
    now.seconds = 6
    assert order(store, 1, 2) == [1, 2]


def test_a_scope_keeps_no_more_than_its_share_and_nobody_keeps_all() -> None:
    store = SnapshotStore(8 * ROW, ROW)
    for name in range(1, 9):
        store.keep(text(name), "a", row(1))
        store.retain(text(name), "a", RetentionHints(pin_s=100))
    assert order(store, *range(1, 9))[:6] == [3, 4, 5, 6, 7, 8], "two of eight are a quarter"
    for new in range(200, 210):
        store.keep(text(new), "a", row(1))
        store.retain(text(new), "a", RetentionHints(pin_s=100))
    assert store.nbytes == 8 * ROW


@given(
    kept=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=8), max_size=12),
    asked=st.lists(st.integers(0, 1), max_size=10),
    limit=st.integers(0, 10),
)
def test_the_deepest_is_what_a_search_over_all_of_them_finds(
    kept: list[list[int]], asked: list[int], limit: int
) -> None:
    store = SnapshotStore(1000 * ROW, ROW)
    for each in kept:
        store.keep(text(*each), "a", row(len(each)))
    fits = [len(e) for e in kept if len(e) <= min(limit, len(asked)) and asked[: len(e)] == e]
    assert store.deepest(text(*asked), "a", limit) == max(fits, default=0)
