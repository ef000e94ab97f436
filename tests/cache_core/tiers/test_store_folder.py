"""A folder that many write to: only what one of us signed is served."""

import errno
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cache_core.block_header import Body, DropReason, pack
from cache_core.tiers.codec import Codec
from cache_core.tiers.store_folder import StoreFolder, StoreOptions
from tests.cache_core.tiers.blocks import (
    IDENTITY,
    OTHER,
    SIZE,
    FaultyFiles,
    headers_of,
    payload,
    put,
    rows,
    served,
)

KEY = b"m" * 32
HEADERS = headers_of(0, 6)


def store(folder: Path, files: FaultyFiles | None = None, **changes: Any) -> StoreFolder:
    return StoreFolder(
        StoreOptions(**{"folder": folder, "capacity_bytes": 1 << 30, "mac_key": KEY, **changes}), files
    )


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "codec", [Codec(), Codec(compression=1, key=b"k" * 32)], ids=["plain", "compressed and encrypted"]
)
@pytest.mark.parametrize("size", [1, SIZE, 10_001])
def test_what_one_stores_another_reads(tmp_path: Path, codec: Codec, size: int) -> None:
    one, other = store(tmp_path, codec=codec), store(tmp_path, codec=codec)
    assert put(one, HEADERS, size) == len(HEADERS)
    assert served(other, HEADERS, size) == served(other, HEADERS, size, timeout=60) == len(HEADERS)
    assert served(other, headers_of(100, 2), size) == 0
    assert (other.stats().hits, other.stats().misses, other.stats().drops) == (12, 2, {})
    assert other.contains([HEADERS[0].key, b"?" * 52]).tolist() == [True, False]
    assert other.delete([HEADERS[0].key, b"?" * 52]) == 1
    assert served(one, HEADERS, size) == len(HEADERS) - 1
    one.close()
    other.close()


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    put(store(tmp_path / "s"), HEADERS)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in files_in(tmp_path)}
    folders = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_dir()}
    assert (modes, folders) == ({0o600}, {0o700})


def test_no_flipped_bit_is_served(tmp_path: Path) -> None:
    tier = store(tmp_path)
    put(tier, HEADERS[:1])
    (file,) = files_in(tmp_path)
    whole = file.read_bytes()
    for bit in range(0, len(whole) * 8, 331):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        assert served(tier, HEADERS[:1]) == 0
        assert not file.exists(), "a bad file makes room for a good one"
    tier.close()


def test_what_was_signed_with_another_key_or_none_is_forged(tmp_path: Path) -> None:
    stranger = store(tmp_path, mac_key=b"x" * 32)
    put(stranger, HEADERS[:1])
    tier = store(tmp_path)
    assert served(tier, HEADERS[:1]) == 0
    body = payload(HEADERS[0])
    path = tier._path(HEADERS[0].key)
    path.write_bytes(pack(HEADERS[0], Body(body, SIZE)) + body)
    assert served(tier, HEADERS[:1]) == 0
    assert tier.stats().drops == {DropReason.FORGED: 2}


def test_a_signed_block_under_another_name_is_not_served(tmp_path: Path) -> None:
    tier = store(tmp_path)
    put(tier, HEADERS)
    first, second = (tier._path(header.key) for header in HEADERS[:2])
    shutil.copy(first, second)
    assert served(tier, HEADERS) == len(HEADERS) - 1
    assert tier.stats().drops == {DropReason.WRONG_BLOCK: 1}


def test_another_identitys_block_is_not_served(tmp_path: Path) -> None:
    tier = store(tmp_path)
    put(tier, HEADERS[:1])
    twin = replace(HEADERS[0], identity=OTHER)
    tier._path(twin.key).parent.mkdir(parents=True)
    shutil.copy(tier._path(HEADERS[0].key), tier._path(twin.key))
    assert not tier.get([twin], rows(1)).any()
    assert tier.stats().drops == {DropReason.WRONG_IDENTITY: 1}


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
    assert put(one, HEADERS) == served(other, HEADERS) == len(HEADERS), "a purge is no ban"


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


def test_writers_of_several_processes_do_not_disturb_each_other(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=120)[0] for process in processes] == ["well\n"] * 3
    tier = store(tmp_path)
    assert served(tier, headers_of(900, 4)) == 4


def test_a_short_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        store(tmp_path, mac_key=b"short")


def test_a_store_that_others_share_is_not_cleared(tmp_path: Path) -> None:
    tier = store(tmp_path)
    assert put(tier, HEADERS) == len(HEADERS)
    assert tier.clear() == 0
    assert served(tier, HEADERS) == len(HEADERS)
