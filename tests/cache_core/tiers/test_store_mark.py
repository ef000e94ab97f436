"""What lies where the store should be: a mount that comes, goes, is empty, or is somebody else's."""

import logging
import os
import shutil
from pathlib import Path

import pytest

from cache_core.drop_reason import DropReason
from cache_core.tiers import store_mark
from cache_core.tiers.base import Watermarks
from cache_core.tiers.errors import TierError
from cache_core.tiers.store_folder import StoreFolder, StoreOptions
from cache_core.tiers.store_mark import MARK, mount_of
from tests.cache_core.manual_clock import ManualClock
from tests.cache_core.tiers.blocks import headers_of, put, served
from tests.cache_core.tiers.store_contract import KEY

HEADERS = headers_of(0, 3)


class Mounts:
    """Folders that stand for what is mounted at one place: one of them is moved there, the place itself away."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self.hidden, self.mounted = place, place.with_name("hidden"), ""
        place.mkdir()
        monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == place and bool(self.mounted))
        stat = Path.stat

        class OtherDevice:
            """As a file system of its own has it."""

            def __init__(self, status: os.stat_result, name: str) -> None:
                self._status, self.st_dev = status, hash(name)

            def __getattr__(self, name: str) -> object:
                return getattr(self._status, name)

        def stat_there(path: Path, **more: bool) -> object:
            status = stat(path, **more)
            return OtherDevice(status, self.mounted) if path.name == MARK and self.mounted else status

        monkeypatch.setattr(Path, "stat", stat_there)

    def mount(self, name: str) -> Path:
        """Another folder is there from now on; what was there is out of sight."""
        self.place.rename(self.hidden)
        source = self.place.with_name(name)
        source.mkdir(exist_ok=True)
        source.rename(self.place)
        self.mounted = name
        return self.place

    def unmount(self) -> None:
        self.place.rename(self.place.with_name(self.mounted))
        self.hidden.rename(self.place)
        self.mounted = ""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mounts:
    return Mounts(tmp_path / "kv", monkeypatch)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def store(folder: Path, clock: ManualClock, mounted: bool = True) -> StoreFolder:
    return StoreFolder(StoreOptions(folder, 1 << 30, KEY, mounted=mounted), clock=clock.now)


def test_a_start_before_the_mount_writes_nothing_into_its_place_and_takes_it_when_it_is_there(
    mounts: Mounts, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        tier = store(mounts.place, clock)
        assert "nothing is mounted there" in caplog.text
        assert put(tier, HEADERS) == 0
        assert tier.stats().drops == {DropReason.MISSING: 3}
        assert not list(mounts.place.iterdir())
        mounts.mount("nfs")
        clock.advance(5.0)
        assert put(tier, HEADERS) == 3
        assert "is the store from now on" in caplog.text
        assert "is the store again" in caplog.text
    assert served(tier, HEADERS) == 3
    assert (mounts.place / MARK).exists()


def test_a_fresh_mount_that_replaces_the_store_while_the_process_runs_is_taken(
    mounts: Mounts, clock: ManualClock
) -> None:
    mounts.mount("first")
    tier = store(mounts.place, clock)
    assert put(tier, HEADERS) == 3
    mounts.unmount()
    mounts.mount("second")
    (mounts.place / "lost+found").mkdir()
    assert put(tier, HEADERS) == 3
    assert (mounts.place / MARK).exists()
    mounts.unmount()
    mounts.mount("first")
    assert served(tier, HEADERS) == 3
    tier.probe()


def test_a_mark_that_the_mount_hides_does_not_make_its_place_the_store(
    mounts: Mounts, clock: ManualClock
) -> None:
    (mounts.place / MARK).touch()
    tier = store(mounts.place, clock)
    assert put(tier, HEADERS) == 0
    assert [path.name for path in mounts.place.iterdir()] == [MARK]
    mounts.mount("nfs")
    clock.advance(5.0)
    assert put(tier, HEADERS) == 3
    mounts.unmount()
    assert put(tier, headers_of(100, 2)) == 0, "it went while the process ran"
    assert [path.name for path in mounts.place.iterdir()] == [MARK]


def test_a_mount_with_files_of_others_is_not_taken_until_somebody_says_so(
    mounts: Mounts, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    mounts.mount("others")
    (mounts.place / "thesis.tex").write_text("years of work")
    with caplog.at_level(logging.WARNING):
        tier = store(mounts.place, clock)
        assert put(tier, HEADERS) == 0
    assert "has files, but no .kvgate-store. If it is the store, make that file" in caplog.text
    tier.clean(marks=Watermarks(0.0, 0.0))
    assert (mounts.place / "thesis.tex").exists(), "nor is anything removed from it"
    with pytest.raises(TierError, match="away"):
        tier.probe()
    (mounts.place / MARK).touch()
    clock.advance(5.0)
    assert put(tier, HEADERS) == 3


def test_a_folder_that_is_not_said_to_be_mounted_is_back_when_its_mark_is(
    mounts: Mounts, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    mounts.mount("nfs")
    tier = store(mounts.place, clock, mounted=False)
    assert put(tier, HEADERS) == 3
    mounts.unmount()
    with caplog.at_level(logging.WARNING):
        assert put(tier, headers_of(100, 2)) == 0
        clock.advance(6.0)
        assert put(tier, headers_of(100, 2)) == 0
        assert caplog.text.count("make that file") == 1, "once a minute"
        clock.advance(60.0)
        assert put(tier, headers_of(100, 2)) == 0
        assert caplog.text.count("make that file") == 2
    assert not list(mounts.place.iterdir())
    mounts.mount("nfs")
    assert put(tier, headers_of(100, 2)) == 2
    assert served(tier, HEADERS) == 3


def test_a_purge_that_failed_while_the_mount_was_away_is_done_when_it_is_back(
    mounts: Mounts, clock: ManualClock
) -> None:
    mounts.mount("nfs")
    tier = store(mounts.place, clock)
    put(tier, HEADERS)
    mounts.unmount()
    with pytest.raises(TierError, match="away"):
        tier.purge(HEADERS[0].identity)
    mounts.mount("nfs")
    clock.advance(5.0)
    tier.clean()
    assert not [path for path in mounts.place.rglob("*") if path.is_file() and path.name != MARK]


def test_a_folder_within_a_mount_is_made_there(mounts: Mounts, clock: ManualClock) -> None:
    mounts.mount("nfs")
    tier = store(mounts.place / "team" / "kv", clock)
    assert put(tier, HEADERS) == 3
    assert (mounts.place / "team" / "kv").stat().st_mode & 0o777 == 0o700
    assert mount_of(mounts.place / "team" / "kv") == mounts.place


def test_the_root_is_no_mount_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == Path("/"))
    assert mount_of(tmp_path / "kv") is None


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no second file system here")
def test_a_real_mount_is_one() -> None:
    folder = Path("/dev/shm") / f"kvgate-store-mark-{os.getpid()}"
    try:
        assert mount_of(folder) == Path("/dev/shm")
        tier = StoreFolder(StoreOptions(folder, 1 << 30, KEY, mounted=True))
        assert put(tier, HEADERS) == 3
        assert served(tier, HEADERS) == 3
        assert store_mark.MARK in os.listdir(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
