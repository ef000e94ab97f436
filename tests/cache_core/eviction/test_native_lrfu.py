"""The compiled policy decides as the one in Python does, request by request."""

import ctypes
import gc
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cache_core import BlockPool, PrefixCache
from cache_core.eviction import AdaptiveLRFU, native_lrfu
from cache_core.eviction.adaptive_lrfu import HALF_LIVES
from cache_core.eviction.native_lrfu import NativeLRFU
from cache_core.metrics import RecordingObserver
from cache_core.native import NativeBuildError, load_lrfu
from cache_core.prefix_index import nodes_below
from tests.cache_core.eviction.driving import cache_of, put

PATHS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=60)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return load_lrfu(tmp_path_factory.mktemp("native"))


class Both:
    """The same requests to a cache with each."""

    def __init__(self, library: ctypes.CDLL, capacity: int, vote_every: int = 20) -> None:
        self.python = AdaptiveLRFU(HALF_LIVES, vote_every)
        self.native = NativeLRFU(library, HALF_LIVES, vote_every)
        self.observers = RecordingObserver(), RecordingObserver()
        self.caches = tuple(
            PrefixCache(BlockPool(capacity, 1), policy, observer=observer)
            for policy, observer in zip((self.python, self.native), self.observers, strict=True)
        )

    def put(self, path: list[int], scope: str = "default") -> None:
        python, native = (put(cache, path, scope=scope) for cache in self.caches)
        assert python == native
        self.require_equal()

    def purge(self, scope: str) -> None:
        for cache in self.caches:
            cache.purge(scope)
        self.require_equal()

    def require_equal(self) -> None:
        held = [sorted(map(repr, contents(cache))) for cache in self.caches]
        assert held[0] == held[1]
        assert self.python.chosen == self.native.chosen
        ghosts = [observer.record().ghost_tokens for observer in self.observers]
        assert ghosts[0] == ghosts[1]
        counts, history = self.native.state.counts(), self.python._history
        assert counts.accesses == history.accesses
        assert counts.blocks == history.blocks
        assert counts.shadow_blocks == tuple(shadow.used for shadow in self.python._shadows)


def as_ids(tokens: list[int]) -> NDArray[np.int32]:
    return np.array(tokens, dtype=np.int32)


def contents(cache: PrefixCache) -> Iterator[tuple[str, list[int], float]]:
    """Every node: its path, and what the policy thinks of it."""
    ranking = cache._policy._policy
    assert isinstance(ranking, AdaptiveLRFU | NativeLRFU)
    for root in cache._index.roots():
        for node in nodes_below(root):
            scope, tokens = cache._index.path_tokens(node)
            yield scope, tokens.tolist(), ranking._score(node)


@settings(deadline=None)
@given(paths=PATHS, capacity=st.integers(4, 20))
def test_every_request_leaves_the_same_blocks_and_scores(
    paths: list[list[int]], capacity: int, library: ctypes.CDLL
) -> None:
    both = Both(library, capacity, vote_every=5)
    for path in paths:
        both.put(path)


@pytest.mark.parametrize("capacity", [12, 40, 300])
def test_long_traffic_of_conversations_comes_out_the_same(library: ctypes.CDLL, capacity: int) -> None:
    """Conversations grow turn by turn, some over 32 times, so that records are split, joined and forgotten."""
    both, traffic = Both(library, capacity), random.Random(capacity)
    talks: list[list[int]] = [[] for _ in range(12)]
    for number in range(900):
        talk = talks[min(int(traffic.expovariate(0.4)), 11)]
        if len(talk) > 90 or traffic.random() < 0.02:
            talk.clear()
        talk.extend([traffic.randrange(3) if traffic.random() < 0.5 else number] * traffic.randint(1, 3))
        both.put(talk, scope=traffic.choice("ab") if number % 7 == 0 else "a")
        if number % 211 == 210:
            both.purge("b")


def test_a_record_outlives_its_history_while_a_node_leads_to_it(library: ctypes.CDLL) -> None:
    both = Both(library, capacity=6)
    leases = [cache.acquire(as_ids([1, 2, 3, -1])) for cache in both.caches]
    for cache, lease in zip(both.caches, leases, strict=True):
        lease.extend(as_ids([1, 2, 3]))
        lease.commit()
        cache.acquire(as_ids([1, 2, 3, 4])).release()
    for number in range(200):  # nothing of the leased path is remembered after that
        both.put([number + 10, number % 3])
    for lease in leases:
        lease.release()
    both.put([1, 2, 3])


def test_what_another_used_in_between_is_nobodys_ghost(library: ctypes.CDLL) -> None:
    both = Both(library, capacity=6)
    for number in range(9):
        both.put([number])  # the first ones are ghosts now
    leases = [cache.acquire(as_ids([0, -1])) for cache in both.caches]
    both.put([0])
    for lease in leases:
        lease.extend(as_ids([0]))
        lease.commit()
        lease.release()
    both.put([1])
    both.put([1, 2])
    assert both.observers[0].record().ghost_tokens == {"device": 2}, "one for each first use"


def test_no_record_stays_once_nobody_leads_to_it(library: ctypes.CDLL) -> None:
    policy = NativeLRFU(library)
    cache = cache_of(16, policy)
    for number in range(300):
        put(cache, [number % 40, number % 7, number], scope="gone")
    cache.purge("gone")
    del cache
    assert policy.victim() is None  # lets go of nodes that are in no tree any more
    gc.collect()
    assert policy.state.counts().records == 0
    assert policy.state.counts().blocks == 0


def test_memory_is_bounded_by_what_is_remembered(library: ctypes.CDLL) -> None:
    policy = NativeLRFU(library)
    cache = cache_of(64, policy)
    sizes = []
    for number in range(6000):
        put(cache, [number % 50, number])
        if number % 2000 == 1999:
            sizes.append(policy.outside_bytes)
    assert sizes[2] <= sizes[0]
    assert policy.state.counts().blocks <= 5 * 64 + 2


def test_half_lives_are_refused_as_in_python(library: ctypes.CDLL) -> None:
    for wrong in ([], [2.0, 1.0], [0.0, 1.0]):
        with pytest.raises(ValueError, match="ascending"):
            NativeLRFU(library, wrong)


def test_without_a_compiler_the_policy_runs_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> ctypes.CDLL:
        raise NativeBuildError("no C compiler found")

    monkeypatch.setattr(native_lrfu, "load_lrfu", refuse)
    native_lrfu._library.cache_clear()
    try:
        assert isinstance(native_lrfu.adaptive_lrfu(), AdaptiveLRFU)
    finally:
        native_lrfu._library.cache_clear()
