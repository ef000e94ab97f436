import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_core.eviction.history import History, Record
from cache_core.eviction.shadow import ShadowCache

PATHS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=60)


def keys(path: list[int]) -> bytes:
    return np.array(path, dtype=np.int64).tobytes()


def records(history: History) -> list[Record]:
    found: list[Record] = []
    stack = [*history._roots.values()]
    while stack:
        record = stack.pop()
        stack.extend((record.children or {}).values())
        if record.parent is not None:
            found.append(record)
    return found


def used(history: History, path: list[int], scope: str = "s") -> list[Record]:
    """One request whose records count their uses."""
    found = history.path(scope, keys(path))
    for record in found:
        record.values[0] = record.values[0] + 1
    history.settle(found)
    return found


@given(PATHS)
def test_every_block_knows_how_often_it_was_used(paths: list[list[int]]) -> None:
    history = History(10_000, [0.0])
    for path in paths:
        used(history, path)
    for path in paths:
        uses: list[float] = []
        for record in history.path("s", keys(path)):
            assert record.start == len(uses)
            uses += [*record.values] * record.num_blocks
        assert uses == [sum(p[:end] == path[:end] for p in paths) for end in range(1, len(path) + 1)]


@given(PATHS, st.integers(1, 20))
def test_what_is_remembered_is_bounded_and_counted(paths: list[list[int]], limit: int) -> None:
    history = History(limit, [0.0])
    for path in paths:
        used(history, path)
        assert history.blocks == sum(record.num_blocks for record in records(history))
        assert history.blocks <= limit


def test_the_leaf_used_longest_ago_is_forgotten_first() -> None:
    history = History(5, [0.0])
    used(history, [1, 2, 3])
    used(history, [1, 4])
    used(history, [1, 2, 3])
    used(history, [5])
    assert [[*record.values] for record in used(history, [1, 2, 3])] == [[4.0], [3.0]]
    used(history, [6])
    assert used(history, [1, 4])[-1].values.tolist() == [1.0], "it was known, and forgotten"


def test_a_scope_is_forgotten_alone_and_at_once() -> None:
    history = History(100, [0.0])
    used(history, [1, 2], "a")
    used(history, [1, 2], "b")
    assert sum(record.num_blocks for record in history.forget("a")) == 2
    assert used(history, [1, 2], "a")[-1].values.tolist() == [1.0]
    assert used(history, [1, 2], "b")[-1].values.tolist() == [2.0]
    assert history.forget("c") == []


def test_a_long_chain_of_records_that_hardly_differ_grows_slower_than_its_uses() -> None:
    history = History(100_000, [0.0], shadows=1)
    shadow = ShadowCache(50_000, 0, history)
    for end in range(1, 2_000):
        path = history.path("s", keys(list(range(end))))
        for record in path:
            record.values[0] = record.values[0] + 0.01
        assert shadow.request(path) == end - 1
        history.settle(path)
    assert len(path) < 300
    assert sum(record.num_blocks for record in path) == 1_999


@settings(deadline=None)
@given(PATHS, st.integers(1, 15), st.integers(1, 30))
def test_a_shadow_cache_holds_whole_prefixes_that_fit(
    paths: list[list[int]], capacity: int, limit: int
) -> None:
    history = History(limit, [0.0], shadows=1)
    shadow = ShadowCache(capacity, 0, history)
    held: set[tuple[int, ...]] = set()
    for path in paths:
        found = history.path("s", keys(path))
        for record in found:
            record.values[0] = float(history.accesses)
        expected = max((end for end in range(len(path) + 1) if tuple(path[:end]) in held), default=0)
        assert shadow.request(found) == expected
        history.settle(found)
        held = _held(history)
        assert len(held) == shadow.used <= capacity
        assert all(prefix[:-1] in held or len(prefix) == 1 for prefix in held)
        assert history.blocks <= max(limit, shadow.used)
        for record in records(history):
            assert record.below[0] == sum(1 for c in (record.children or {}).values() if c.resident[0])
            assert record.holders == bool(record.resident[0])


def _held(history: History) -> set[tuple[int, ...]]:
    held: set[tuple[int, ...]] = set()
    stack: list[tuple[Record, tuple[int, ...]]] = [(root, ()) for root in history._roots.values()]
    while stack:
        record, above = stack.pop()
        whole = above + tuple(np.frombuffer(record.keys, dtype=np.int64).tolist())
        if record.parent is not None:
            held |= {whole[: record.start + n] for n in range(1, record.resident[0] + 1)}
        stack.extend((child, whole) for child in (record.children or {}).values())
    return held
