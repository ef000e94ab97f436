"""A purged scope is out of sight at once and its bytes go for good, however slow a tier is."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

from cache_core.block_header import BlockHeader
from cache_core.state_groups import StateGroup
from cache_core.tiered import Purged, TieringOptions, purge_lane
from cache_core.tiers.base import BlockBytes, Mask
from cache_core.tiers.errors import PurgeFailedError
from tests.cache_core.tiered.faulty_files import FaultyFiles
from tests.cache_core.tiered.overlapped import Request, decides
from tests.cache_core.tiered.state_world import hybrid_world
from tests.cache_core.tiered.test_tiered_cache import PROMPT, warm
from tests.cache_core.tiered.world import BLOCK, World, until, world
from tests.waiting import PATIENCE_S

IDS = np.array(PROMPT, dtype=np.int32)
OTHER = list(range(700, 700 + 3 * BLOCK + 1))
SOON = 2.0  # seconds: by then whatever does not hang has answered
SECRET = 424_242  # a token id of which no trace may be left
SECRETS = [SECRET] * (5 * BLOCK + 1)


def traces(folder: Path) -> int:
    """Files with token ids of `SECRETS`."""
    bytes_of = np.full(BLOCK, SECRET, dtype=np.int32).tobytes()
    return sum(bytes_of in file.read_bytes() for file in folder.rglob("*") if file.is_file())


def hang_a_write(it: World, files: FaultyFiles) -> None:
    """Let the disk hang while it stores what another scope wrote."""
    files.hang_writes = True
    it.run(OTHER, "other")
    it.run(OTHER, "other")
    assert files.hanging.wait(PATIENCE_S)
    until(lambda: it.tiers._backup.idle)  # it holds none of the blocks any more


def test_every_tier_forgets_a_scope_and_keeps_the_others(tmp_path: Path) -> None:
    disk, store = tmp_path / "disk", tmp_path / "store"
    with world(disk, store=store) as it:
        warm(it, SECRETS)
        it.run(OTHER, "other")
        it.run(OTHER, "other")
        it.settle()
        assert (traces(disk), traces(store)) == (1, 5)
        assert it.tiers.purge("default") == Purged(4 * 5)
        assert (traces(disk), traces(store)) == (0, 0)
        it.cache.flush()
        assert it.fetch(OTHER, "other")
        assert it.run(OTHER, "other") == 3 * BLOCK
    with world(disk, store=store) as again:
        assert not again.fetch(SECRETS)


def test_a_purge_does_not_wait_for_a_disk_that_hangs_and_hides_the_scope_at_once(tmp_path: Path) -> None:
    files = FaultyFiles()
    disk, store = tmp_path / "disk", tmp_path / "store"
    with world(disk, store=store, files=files) as it:
        warm(it, SECRETS)
        hang_a_write(it, files)
        purged = it.tiers.purge("default", timeout=SOON)
        assert purged.pending == ("disk",)
        assert purged.blocks == 3 * 5, "device, host and store have answered"
        assert traces(store) == 0
        assert traces(disk) == 1
        ids = np.array(SECRETS, dtype=np.int32)
        assert it.cache.match(ids) == 0
        assert it.tiers.prefetch(ids) is None, "the disk still has it, but nobody looks"
        assert it.run(SECRETS) == 0
        files.release.set()
        until(lambda: it.tiers.idle)
        assert traces(disk) == 0
        assert it.tiers.purge("default").pending == ()
    with world(disk, store=store) as again:
        assert not again.fetch(SECRETS)
        assert again.fetch(OTHER, "other")


def test_while_a_purge_is_pending_other_scopes_are_served(tmp_path: Path) -> None:
    files = FaultyFiles()
    with world(tmp_path, files=files) as it:
        it.run(PROMPT, "mine")
        it.run(PROMPT, "mine")
        warm(it, SECRETS)
        hang_a_write(it, files)
        assert it.tiers.purge("default", timeout=0.0).pending == ("disk",)
        it.cache.flush()
        fetch = it.tiers.prefetch(IDS, "mine")
        assert fetch is not None
        until(lambda: fetch.done)
        assert it.cache.match(IDS, "mine") == 5 * BLOCK
        files.release.set()


def test_what_is_used_again_while_a_purge_is_pending_is_kept_after_it(tmp_path: Path) -> None:
    files = FaultyFiles()
    with world(tmp_path, files=files) as it:
        warm(it, SECRETS)
        hang_a_write(it, files)
        it.tiers.purge("default", timeout=0.0)
        assert it.run(SECRETS) == 0
        assert it.run(SECRETS) == 5 * BLOCK
        files.release.set()
        until(lambda: it.tiers.idle)
        assert traces(tmp_path) == 0, "it was used a second time before the purge was over"
        it.run(SECRETS)
        it.settle()
        assert traces(tmp_path) == 1
        it.cache.flush()
        assert it.fetch(SECRETS)


def test_a_copy_that_hangs_in_the_disk_is_not_there_after_a_purge(tmp_path: Path) -> None:
    files = FaultyFiles()
    with world(tmp_path, files=files) as it:
        files.hang_writes = True
        it.run(SECRETS)
        it.run(SECRETS)
        assert files.hanging.wait(PATIENCE_S)
        assert it.tiers.purge("default", timeout=0.0).pending == ("disk",)
        files.release.set()
        until(lambda: it.tiers.idle)
        assert traces(tmp_path) == 0
    with world(tmp_path) as again:
        assert not again.fetch(SECRETS)


@pytest.mark.parametrize("reads", [True, False])
def test_a_fetch_that_hangs_ends_with_the_purge_and_brings_nothing(tmp_path: Path, reads: bool) -> None:
    with world(tmp_path) as before:
        warm(before, SECRETS)
    files = FaultyFiles()
    with world(tmp_path, files=files) as it:
        files.hang_reads = reads
        ids = np.array(SECRETS, dtype=np.int32)
        fetch = it.tiers.prefetch(ids)
        assert fetch is not None
        if reads:
            assert files.hanging.wait(PATIENCE_S)
        it.tiers.purge("default", timeout=0.0)
        until(lambda: fetch.done)
        assert it.cache.match(ids) == 0
        files.release.set()
        until(lambda: it.tiers.idle)
        assert it.tiers.host.stats().blocks == 0
        assert it.cache.stats().leases == 0
        assert not it.fetch(SECRETS)


def test_purges_of_one_scope_at_the_same_time_all_return(tmp_path: Path) -> None:
    with world(tmp_path) as it:
        warm(it, SECRETS)
        found: list[int] = []
        threads = [Thread(target=lambda: found.append(it.tiers.purge("default").blocks)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert sum(found) == 3 * 5
        assert it.tiers.idle
        warm(it, SECRETS)
        it.cache.flush()
        assert it.fetch(SECRETS), "it is over: what comes now is kept again"


def test_nothing_of_a_purged_scope_is_remembered_in_memory(tmp_path: Path) -> None:
    with world(tmp_path, options=TieringOptions("write_back", reserve_blocks=0)) as it:
        it.run(SECRETS)
        it.cache.evict(3)
        it.settle()
        assert len(it.tiers._backup._last[1])
        it.tiers.purge("default")
        assert len(it.tiers._backup._last[1]) == 0
        assert not it.tiers._chains._memory._prompts


def test_a_flush_does_not_wait_for_a_disk_that_hangs(tmp_path: Path) -> None:
    files = FaultyFiles()
    with world(tmp_path, files=files) as it:
        warm(it, SECRETS)
        hang_a_write(it, files)
        first = it.tiers.flush(timeout=SOON)
        assert (first.blocks, first.pending) == (2 * 5 + 2 * 3, ("disk",))
        assert it.tiers.flush(["disk"], timeout=0.0) == Purged(0, ("disk",))
        there = list(tmp_path.glob("*.segment"))
        assert there
        files.release.set()
        until(lambda: not any(path.exists() for path in there))  # what was on its way may be in a new one


def test_a_flush_of_one_tier_leaves_the_others(tmp_path: Path) -> None:
    with world(tmp_path, store=tmp_path / "store") as it:
        warm(it)
        assert it.tiers.flush(["host"]) == Purged(5)
        assert it.tiers.flush() == Purged(2 * 5), (
            "device and disk: the host is empty, the store is not ours alone"
        )
        assert it.tiers.stats()["disk"].blocks == 0
        assert it.fetch(PROMPT), "from the store"


def begun(request: Request) -> bool:
    assert request.load is not None
    assert request.lease is not None
    request.load.advance(request.lease, request.lease.ready)
    return request.load.start is not None or request.load.over


def test_a_load_into_a_request_that_is_admitted_during_the_purge_brings_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It comes between the device, which has forgotten the scope, and the host, which has not yet."""
    with world() as it:
        warm(it)
        it.cache.flush()
        decides(it, 0, 0)
        request = Request(it, IDS)
        until(lambda: request.ask is None or request.ask.answer is not None)
        purge = it.cache.purge

        def then_admit(scope: str) -> int:
            freed = purge(scope)
            request.admit()
            if request.load is not None and request.lease is not None:
                until(lambda: begun(request))
            return freed

        monkeypatch.setattr(it.cache, "purge", then_admit)
        it.tiers.purge("default")
        request.finish()
        assert request.came == 0
        it.settle()


def test_a_crash_while_a_purge_is_pending_does_not_bring_the_scope_back(tmp_path: Path) -> None:
    files = FaultyFiles()
    with world(tmp_path / "kv", files=files) as it:
        warm(it, SECRETS)
        hang_a_write(it, files)
        assert it.tiers.purge("default", timeout=SOON).pending == ("disk",)
        shutil.copytree(tmp_path / "kv", tmp_path / "as it lies there")
        files.release.set()
    (tmp_path / "as it lies there" / "lock").unlink(missing_ok=True)
    with world(tmp_path / "as it lies there") as again:
        assert traces(tmp_path / "as it lies there") == 0
        assert not again.fetch(SECRETS)


def test_a_crash_while_purges_wait_for_a_write_of_their_own_scope_brings_none_back(tmp_path: Path) -> None:
    """One purge waits for what is being stored of its scope, and another one waits for that purge."""
    files = FaultyFiles()
    copy = tmp_path / "as it lies there"
    with world(tmp_path / "kv", files=files) as it:
        warm(it, SECRETS)
        for _ in range(2):
            it.run(PROMPT, "mine")
        it.settle()
        files.hang_writes = True
        longer = [*SECRETS[:-1], *range(BLOCK + 1)]
        it.run(longer)
        it.run(longer)
        assert files.hanging.wait(PATIENCE_S)
        assert it.tiers.purge("default", timeout=SOON).pending == ("disk",)
        assert it.tiers.purge("mine", timeout=SOON).pending == ("disk",)
        shutil.copytree(tmp_path / "kv", copy)
        files.release.set()
    (copy / "lock").unlink(missing_ok=True)
    with world(copy) as again:
        assert traces(copy) == 0
        assert not again.fetch(SECRETS)
        assert not again.fetch(PROMPT, "mine")


def test_purges_that_wait_for_a_tier_that_hangs_are_bounded_and_one_too_many_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge_lane, "MOST_WAITING", 3)
    files = FaultyFiles()
    with world(tmp_path, files=files) as it:
        warm(it, SECRETS)
        hang_a_write(it, files)
        for _ in range(3):
            assert it.tiers.purge("default", timeout=0.0).pending == ("disk",)
        with pytest.raises(PurgeFailedError, match="purge again when it answers"):
            it.tiers.purge("mine", timeout=5.0)
        files.release.set()
        until(lambda: it.tiers.idle)
        assert it.tiers.purge("mine").pending == ()
        assert traces(tmp_path) == 0


def test_a_part_that_fails_is_told_and_the_next_purge_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path) as it:
        warm(it)

        def breaks(*_: object) -> int:
            raise OSError("broken")

        with monkeypatch.context() as broken:
            broken.setattr(it.tiers._purger, "_forget", breaks)
            with pytest.raises(PurgeFailedError, match="broken"):
                it.tiers.purge("default")
        assert it.tiers.idle
        warm(it)
        assert it.tiers.purge("default").pending == ()
        assert not it.fetch(PROMPT)


def test_a_state_that_hangs_on_its_way_to_one_tier_holds_up_no_purge_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hybrid_world(tmp_path / "disk", store=tmp_path / "store") as hybrid:
        store, reached, go = hybrid.it.tiers.colder["store"], Event(), Event()
        put = store.put

        def slowly(headers: Sequence[BlockHeader], blocks: BlockBytes) -> Mask:
            if headers[0].group == StateGroup.RECURRENT:
                reached.set()
                assert go.wait(60)
            return put(headers, blocks)

        monkeypatch.setattr(store, "put", slowly)
        for _ in range(2):
            hybrid.run(PROMPT)
        assert reached.wait(PATIENCE_S)
        disk, erased = hybrid.it.tiers.colder["disk"], Event()
        erase = disk.purge
        monkeypatch.setattr(disk, "purge", lambda identity: (erased.set(), erase(identity))[1])
        purge = Thread(target=hybrid.it.tiers.purge, args=("default", 60.0))
        purge.start()
        assert erased.wait(PATIENCE_S)
        assert not go.is_set()
        go.set()
        purge.join(PATIENCE_S)
