"""KV that is computed otherwise from one moment on: nothing that was on its way then is taken for the new one's."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from cache_core.residency import BITS
from cache_core.tiered import TieringOptions, chain
from cache_core.tiered.chain import ScopeChains
from tests.cache_core.tiered.state_world import hybrid_world
from tests.cache_core.tiered.test_tiered_cache import PROMPT, warm
from tests.cache_core.tiered.world import BLOCK, PATIENT, World, identity, until, world

IDS = np.array(PROMPT, dtype=np.int32)
N = len(PROMPT) // BLOCK
OTHER = identity(b"other")
WRITE_BACK = TieringOptions(write_policy="write_back", reserve_blocks=0)


def below(it: World) -> int:
    """Blocks of the prompt that some tier below the device has under the identity of now."""
    return sum("device" not in tiers and bool(tiers) for tiers in it.tiers.residency(IDS))


def once(method: Callable[..., Any], first: Callable[[], None]) -> Callable[..., Any]:
    """`method`, but `first` happens before its first call."""
    pending = [first]

    def call(*args: Any, **keywords: Any) -> Any:
        if pending:
            pending.pop()()
        return method(*args, **keywords)

    return call


def test_a_digest_that_is_made_while_the_identity_changes_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chains = ScopeChains(identity())
    monkeypatch.setattr(chain, "replace", once(replace, lambda: chains.replace(OTHER)))
    chains.digest("default")
    assert chains.digest("default") == ScopeChains(OTHER).digest("default")


def test_what_is_evicted_while_the_identity_changes_is_not_filed_under_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path, options=WRITE_BACK) as it:
        it.run(PROMPT)
        old = it.tiers._chains.digest("default")
        changes = Thread(target=it.tiers.identify, args=(OTHER,))

        def begins() -> None:
            changes.start()
            until(lambda: it.tiers._chains.digest("default") != old)

        backup = it.tiers._backup
        monkeypatch.setattr(backup, "_headers_again", once(backup._headers_again, begins))
        it.tiers.demote(N)
        changes.join(120)
        assert below(it) == 0
        it.settle()
        it.tiers.identify(identity())
        it.run(PROMPT)
        it.tiers.demote(N)
        it.settle()
        assert below(it) == N, "the first one's headers are its own again"


def test_where_blocks_were_found_before_is_not_noted_of_those_computed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path) as it:
        warm(it)
    with world(tmp_path, options=replace(PATIENT, write_policy="none")) as it:

        def changes() -> None:
            it.compute_otherwise(b"other")
            it.run(PROMPT)

        monkeypatch.setattr(it.tiers.host, "stamp", once(it.tiers.host.stamp, changes))
        assert it.fetch(PROMPT)
        it.settle()
        assert it.weights == b"other"
        assert it.cache.residency(IDS).tolist() == [BITS["device"]] * N


def test_a_prefix_that_was_found_before_is_not_brought_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path) as it:
        warm(it)
        it.cache.flush()
        prefetcher = it.tiers._prefetcher
        changes = once(prefetcher._find, lambda: it.tiers.identify(OTHER))
        monkeypatch.setattr(prefetcher, "_find", changes)
        it.fetch(PROMPT)
        assert it.cache.match(IDS) == 0


@pytest.mark.parametrize("kv_stays", [True, False])
def test_a_state_that_was_found_before_is_not_brought_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kv_stays: bool
) -> None:
    with hybrid_world(tmp_path) as hybrid:
        for _ in range(2):
            hybrid.run(PROMPT)
        hybrid.it.settle()
        hybrid.states.flush() if kv_stays else hybrid.forget_device()
        prefetcher: Any = hybrid.it.tiers._prefetcher
        changes = once(prefetcher._bring_up, lambda: hybrid.it.tiers.identify(OTHER))
        monkeypatch.setattr(prefetcher, "_bring_up", changes)
        hybrid.fetch(PROMPT)
        assert not hybrid.states.kept
        assert hybrid.run(PROMPT) == 0
