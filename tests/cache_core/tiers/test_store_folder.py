"""A folder that many write to: only what one of us signed is served."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cache_core.drop_reason import DropReason
from cache_core.tiers.base import Watermarks
from cache_core.tiers.errors import PurgeFailedError, TierError
from cache_core.tiers.store import StoreTier
from cache_core.tiers.store_folder import StoreFolder, StoreOptions
from tests.cache_core.tiers.blocks import (
    IDENTITY,
    OTHER,
    SIZE,
    FaultyFiles,
    headers_of,
    put,
    rows,
    served,
)
from tests.cache_core.tiers.store_contract import HEADERS, KEY, Place, StoreContract


def store(folder: Path, files: FaultyFiles | None = None, **changes: Any) -> StoreFolder:
    return StoreFolder(
        StoreOptions(**{"folder": folder, "capacity_bytes": 1 << 30, "mac_key": KEY, **changes}), files
    )


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".kvgate-store")


class InFolder(Place):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, **changes: Any) -> StoreFolder:
        return store(self.folder, **changes)

    def read(self, tier: StoreTier, key: bytes) -> bytes | None:
        path = self._path(tier, key)
        return path.read_bytes() if path.exists() else None

    def write(self, tier: StoreTier, key: bytes, data: bytes) -> None:
        self._path(tier, key).parent.mkdir(parents=True, exist_ok=True)
        self._path(tier, key).write_bytes(data)

    @staticmethod
    def _path(tier: StoreTier, key: bytes) -> Path:
        assert isinstance(tier, StoreFolder)
        return tier._path(key)


class TestContract(StoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return InFolder(tmp_path)


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    put(store(tmp_path / "s"), HEADERS)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in files_in(tmp_path)}
    folders = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_dir()}
    assert (modes, folders) == ({0o600}, {0o700})


def test_links_pipes_folders_and_endless_files_are_dropped(tmp_path: Path) -> None:
    tier = store(tmp_path)
    put(tier, HEADERS[:4])
    paths = [tier._path(header.key) for header in HEADERS[:4]]
    kept = tmp_path / "kept"
    paths[0].rename(kept)
    paths[0].symlink_to(kept)
    paths[1].unlink()
    os.mkfifo(paths[1])
    paths[2].unlink()
    paths[2].mkdir()
    with paths[3].open("r+b") as file:
        file.truncate(1 << 40)
    assert served(tier, HEADERS[:4]) == 0
    assert sum(tier.stats().drops.values()) == 4
    tier.close()


@pytest.mark.parametrize("method", ["open", "read", "write", "sync"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_failing_disk_is_a_drop(tmp_path: Path, method: str, number: int) -> None:
    files = FaultyFiles()
    tier = store(tmp_path, files)
    put(tier, HEADERS[:3])
    files.fail(method, with_errno=number)
    assert put(tier, HEADERS[3:]) == (3 if method == "read" else 0)
    assert served(tier, HEADERS[:3]) == (0 if method in ("open", "read") else 3)
    assert sum(tier.stats().drops.values()) >= 3
    files.heal()
    assert put(tier, HEADERS) == served(tier, HEADERS) == len(HEADERS)
    assert not [path for path in files_in(tmp_path) if path.suffix == ".part"]
    tier.close()


def test_a_hanging_mount_is_waited_for_until_the_deadline_alone(tmp_path: Path) -> None:
    files = FaultyFiles()
    tier = store(tmp_path, files)
    put(tier, HEADERS)
    files.going.clear()
    out = rows(len(HEADERS))
    assert not tier.get(HEADERS, out, timeout=0.05).any()
    assert tier.stats().drops == {DropReason.SLOW: len(HEADERS)}
    files.going.set()
    assert served(tier, HEADERS, timeout=60) == len(HEADERS)
    assert not out.any()
    tier.close()


def test_a_purge_takes_one_identity_for_all_users(tmp_path: Path) -> None:
    one, other = store(tmp_path), store(tmp_path)
    theirs = headers_of(0, 6, OTHER)
    put(one, HEADERS)
    put(one, theirs)
    assert other.purge(IDENTITY) == len(HEADERS)
    assert served(one, HEADERS) == 0
    assert served(one, theirs) == len(theirs)
    assert len(files_in(tmp_path)) == len(theirs)
    assert other.purge(IDENTITY) == 0


def test_a_write_that_began_before_the_purge_is_not_stored_after_it(tmp_path: Path) -> None:
    files = FaultyFiles()
    tier = store(tmp_path, files, parallel=1)

    def purge(method: str) -> None:
        if method == "sync":
            tier.purge(IDENTITY)

    files.hook = purge
    assert put(tier, HEADERS) == 0
    assert files_in(tmp_path) == []


def test_cleaning_keeps_what_was_used_last_within_the_capacity(tmp_path: Path) -> None:
    tier = store(tmp_path, capacity_bytes=3 * (SIZE + 600))
    put(tier, HEADERS)
    for age, header in enumerate(HEADERS):
        os.utime(tier._path(header.key), (1000 - age, 1000 - age))
    served(tier, HEADERS[5:])  # the oldest, used now
    assert tier.clean() > 0
    assert tier.contains([header.key for header in HEADERS]).tolist() == [
        True,
        True,
        False,
        False,
        False,
        True,
    ]
    assert tier.clean() == 0


def test_a_mount_that_is_away_takes_nothing_and_purges_nothing_and_is_purged_when_it_is_back(
    tmp_path: Path,
) -> None:
    mount, elsewhere = tmp_path / "kv", tmp_path / "elsewhere"
    tier, other = store(mount), headers_of(0, 4, OTHER)
    assert put(tier, HEADERS) == len(HEADERS)
    assert put(tier, other) == 4
    mount.rename(elsewhere)
    mount.mkdir()  # as a mount point is without its mount
    assert put(tier, headers_of(100, 2)) == served(tier, HEADERS) == 0
    assert files_in(mount) == [], "nothing goes to the disk below"
    assert tier.stats().drops == {DropReason.MISSING: 2}
    with pytest.raises(PurgeFailedError, match="is away"):
        tier.purge(IDENTITY)
    assert tier.clean() == 0
    mount.rmdir()
    elsewhere.rename(mount)
    assert served(tier, HEADERS) == 0
    assert not tier.contains([header.key for header in HEADERS]).any()
    assert put(tier, headers_of(200, 2)) == 0, "not before the old ones are gone"
    assert served(tier, other) == 4, "which were not purged"
    tier.clean()
    assert len(files_in(mount)) == 4
    assert put(tier, HEADERS) == served(tier, HEADERS) == len(HEADERS)
    tier.close()


def test_the_mark_of_a_store_outlives_cleaning(tmp_path: Path) -> None:
    tier = store(tmp_path, capacity_bytes=1)
    put(tier, HEADERS)
    assert tier.clean() > 0
    assert put(tier, HEADERS) == len(HEADERS)
    tier.close()


def test_cleaning_keeps_to_the_watermarks(tmp_path: Path) -> None:
    tier = store(tmp_path, capacity_bytes=7 * (SIZE + 600))
    put(tier, HEADERS)
    for age, header in enumerate(HEADERS):
        os.utime(tier._path(header.key), (1000 + age, 1000 + age))
    assert tier.clean(marks=Watermarks(0.9, 0.5)) == 0
    assert tier.clean(marks=Watermarks(0.7, 0.5)) > 0
    assert [header in HEADERS[-3:] for header in HEADERS] == tier.contains([h.key for h in HEADERS]).tolist()
    tier.close()


def test_a_look_at_all_files_lets_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cache_core.tiers.store_folder._LISTED_AT_ONCE", 2)
    tier = store(tmp_path, capacity_bytes=1)
    put(tier, HEADERS)
    asked = 0

    def busy() -> bool:
        nonlocal asked
        asked += 1
        return False

    assert tier.clean(busy) == 0
    assert asked == 1
    assert served(tier, HEADERS) == len(HEADERS)
    tier.close()


WRITER = """
import sys
from pathlib import Path
from tests.cache_core.tiers.blocks import headers_of, put, served
from tests.cache_core.tiers.test_store_folder import store
tier = store(Path(sys.argv[1]))
for round_number in range(8):
    for first in range(0, 1000, 100):
        put(tier, headers_of(first, 4))
        served(tier, headers_of(first, 4))
    tier.delete([header.key for header in headers_of(round_number * 100, 4)])
    tier.clean()
assert set(tier.stats().drops) <= set(), tier.stats().drops
print("well")
"""


@pytest.mark.parametrize(("share", "left"), [(0.25, 4), (1.0, 0)])
def test_cleaning_begins_with_what_scopes_hold_beyond_their_share(
    tmp_path: Path, share: float, left: int
) -> None:
    quiet, loud = headers_of(0, 4), headers_of(0, 30, OTHER)
    tier = store(tmp_path, capacity_bytes=20 * (SIZE + 300), scope_share=share)
    put(tier, quiet)
    put(tier, loud)
    for at, header in enumerate([*quiet, *loud]):
        os.utime(tier._path(header.key), (at, at))
    assert tier.clean() > 0
    assert served(tier, quiet) == left
    assert served(tier, loud[-12:]) == 12
    tier.close()


def test_writers_of_several_processes_do_not_disturb_each_other(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=120)[0] for process in processes] == ["well\n"] * 3
    tier = store(tmp_path)
    assert served(tier, headers_of(900, 4)) == 4


def test_a_look_at_the_folder_writes_and_reads_it_and_leaves_nothing(tmp_path: Path) -> None:
    files = FaultyFiles()
    tier = store(tmp_path, files)
    tier.probe()
    assert not files_in(tmp_path)
    files.fail("write")
    with pytest.raises(OSError, match="Errno"):
        tier.probe()
    files.fail("read")
    with pytest.raises(OSError, match="Errno"):
        tier.probe()
    (tmp_path / ".kvgate-store").unlink()
    with pytest.raises(TierError, match="away"):
        tier.probe()
