"""Whatever the disk does: a counted drop and a miss, never wrong bytes, and no exception."""

import errno
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cache_core.drop_reason import DropReason
from cache_core.tiers.codec import Codec
from cache_core.tiers.errors import FolderInUseError, TierError
from tests.cache_core.tiers.blocks import FaultyFiles, headers_of, opened, payloads, put, rows, served

HEADERS = headers_of(0, 12)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    tier = opened(folder, segment_bytes=40 << 10)
    put(tier, HEADERS)
    tier.close()
    return folder


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


@pytest.mark.parametrize("codec", [Codec(), Codec(compression=1, key=b"k" * 32)], ids=["plain", "coded"])
def test_no_flipped_bit_is_served(tmp_path: Path, codec: Codec) -> None:
    folder = tmp_path / "cache"
    tier = opened(folder, codec=codec, segment_bytes=40 << 10)
    put(tier, HEADERS)
    tier.close()
    whole = tmp_path / "whole"
    shutil.copytree(folder, whole)
    dice = random.Random(1)
    lost = 0
    for _ in range(40):
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
        for path in folder.iterdir():
            for _ in range(3 if path.stat().st_size else 0):
                flip(path, dice.randrange(path.stat().st_size * 8))
        tier = opened(folder, codec=codec)
        there = served(tier, HEADERS)
        lost += there < len(HEADERS)
        assert put(tier, HEADERS) == len(HEADERS), "what was dropped can be stored again"
        assert served(tier, HEADERS) == len(HEADERS)
        tier.close()
    assert lost, "some of the flips must have hit a block"


def test_a_lost_index_is_built_anew_from_the_segments(filled: Path) -> None:
    for path in filled.glob("index*"):
        path.unlink()
    tier = opened(filled)
    assert served(tier, HEADERS) == len(HEADERS)
    tier.close()


@pytest.mark.parametrize("content", [b"", b"no database at all" * 1000])
def test_a_foreign_index_is_built_anew(filled: Path, content: bytes) -> None:
    for path in filled.glob("index*"):
        path.write_bytes(content)
    tier = opened(filled)
    assert served(tier, HEADERS) == len(HEADERS)
    tier.close()


def test_an_index_that_breaks_under_way_is_built_anew(filled: Path) -> None:
    tier = opened(filled)
    tier._catalog.index._db.execute("DROP TABLE blocks")
    assert served(tier, HEADERS) == len(HEADERS)
    tier._catalog.index._db.execute("DROP TABLE segments")
    assert put(tier, headers_of(500, 3)) == 3
    assert served(tier, HEADERS + headers_of(500, 3)) == len(HEADERS) + 3
    tier.close()


def test_lost_and_shortened_segments_lose_their_blocks_alone(filled: Path) -> None:
    first, second, *rest = sorted(filled.glob("*.segment"))
    assert rest
    first.unlink()
    os.truncate(second, second.stat().st_size // 2 + 100)
    tier = opened(filled)
    assert 0 < served(tier, HEADERS) < len(HEADERS)
    tier.close()


def test_a_segment_cut_while_it_is_used_is_a_truncated_drop(filled: Path) -> None:
    tier = opened(filled)
    for path in filled.glob("*.segment"):
        os.truncate(path, 4096 + 100)
    assert served(tier, HEADERS) == 0
    assert tier.stats().drops == {DropReason.TRUNCATED: len(HEADERS)}
    assert served(tier, HEADERS) == 0
    assert tier.stats().misses == len(HEADERS), "a bad block is forgotten"
    tier.close()


def test_an_old_version_is_dropped(filled: Path) -> None:
    tier = opened(filled)
    for path in filled.glob("*.segment"):
        flip(path, 8 * 8)
    served(tier, HEADERS)
    assert tier.stats().drops[DropReason.OLD_VERSION] == len(list(filled.glob("*.segment")))
    tier.close()


def test_foreign_files_in_the_folder_do_not_matter(filled: Path) -> None:
    (filled / "0000000099.segment").write_bytes(os.urandom(10_000))
    (filled / "x.segment").write_bytes(b"x")
    (filled / "0000000098.segment").write_bytes(b"")
    tier = opened(filled)
    assert served(tier, HEADERS) == len(HEADERS)
    tier.close()


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.EIO, DropReason.IO_ERROR), (errno.EACCES, DropReason.PERMISSION)]
)
def test_a_disk_that_fails_to_read_is_a_drop(filled: Path, number: int, reason: DropReason) -> None:
    files = FaultyFiles()
    tier = opened(filled, files)
    files.fail("read", with_errno=number)
    assert served(tier, HEADERS) == 0
    assert tier.stats().drops == {reason: len(HEADERS)}
    files.heal()
    assert put(tier, HEADERS) == served(tier, HEADERS) == len(HEADERS)
    tier.close()


@pytest.mark.parametrize("method", ["open", "write", "sync"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_disk_that_fails_to_write_is_a_drop(filled: Path, method: str, number: int) -> None:
    files = FaultyFiles()
    tier = opened(filled, files, sync=True, direct=False)
    more = headers_of(500, 5)
    files.fail(method, with_errno=number)
    assert put(tier, more) == 0
    assert sum(tier.stats().drops.values()) == 5
    assert served(tier, more) == 0
    files.heal()
    assert put(tier, more) == served(tier, more) == 5
    tier.close()
    tier = opened(filled)
    assert served(tier, more) == 5
    tier.close()


def test_a_disk_smaller_than_its_budget_goes_on_with_what_it_has(tmp_path: Path) -> None:
    files = FaultyFiles()
    folder = tmp_path / "cache"
    tier = opened(folder, files, segment_bytes=40 << 10)

    def full(method: str) -> None:
        files.errors.pop("write", None)
        if method == "write" and sum(path.stat().st_size for path in folder.glob("*.segment")) > 300_000:
            files.errors["write"] = errno.ENOSPC

    files.hook = full
    stored = sum(put(tier, headers_of(i * 100, 4)) for i in range(60))
    assert tier.stats().drops[DropReason.DISK_FULL] > 0
    assert stored > 120, "it makes room for itself"
    assert served(tier, headers_of(5900, 4)) == 4, "and holds the newest"
    tier.close()


def test_short_writes_are_continued(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.short_writes = True
    tier = opened(tmp_path, files)
    assert put(tier, HEADERS) == served(tier, HEADERS) == len(HEADERS)
    tier.close()


def test_a_hanging_disk_is_waited_for_until_the_deadline_alone(filled: Path) -> None:
    files = FaultyFiles()
    tier = opened(filled, files)
    files.going.clear()
    out = rows(len(HEADERS))
    assert not tier.get(HEADERS, out, timeout=0.05).any()
    assert tier.stats().drops == {DropReason.SLOW: len(HEADERS)}
    files.going.set()
    assert served(tier, HEADERS, timeout=60) == len(HEADERS), "it is not forgotten"
    assert not out.any(), "what came late was not written to the caller's rows"
    tier.close()


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = opened(tmp_path, capacity_bytes=1 << 20, segment_bytes=64 << 10)
    kept = headers_of(0, 4)
    put(tier, kept)
    for round_number, jump in enumerate([1e9, -1e9, 0.0, 2e9] * 8):
        monkeypatch.setattr(time, "time", lambda jump=jump: jump)
        assert served(tier, kept, timeout=60) == 4
        put(tier, headers_of(1000 + round_number * 100, 8))
    tier.close()
    tier = opened(tmp_path)
    assert served(tier, kept) == 4
    tier.close()


def test_two_tiers_never_share_a_folder(filled: Path) -> None:
    tier = opened(filled)
    with pytest.raises(FolderInUseError, match=f"process {os.getpid()} "):
        opened(filled)
    assert served(tier, HEADERS) == len(HEADERS)
    tier.close()
    opened(filled).close()


HOLD = """
import sys
from pathlib import Path
from tests.cache_core.tiers.blocks import opened
tier = opened(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(filled: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(filled)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    yield process
    process.kill()
    process.communicate()


def test_another_process_is_named_and_its_end_frees_the_folder(
    filled: Path, holder: subprocess.Popen[bytes]
) -> None:
    with pytest.raises(FolderInUseError, match=f"process {holder.pid} "):
        opened(filled)
    holder.kill()
    holder.wait()
    tier = opened(filled)
    assert served(tier, HEADERS) == len(HEADERS)
    tier.close()


def test_a_place_that_is_no_folder_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TierError, match="cannot be used"):
        opened(tmp_path / "file")


FULL = """
import resource, sys
from pathlib import Path
from tests.cache_core.tiers.blocks import headers_of, opened, put, served
tier = opened(Path(sys.argv[1]), capacity_bytes=64 << 20, segment_bytes=8 << 20)
assert put(tier, headers_of(0, 20)) == 20
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
stored = 0
for i in range(1, 40):
    stored += put(tier, headers_of(i * 100, 20))
    served(tier, headers_of(i * 100, 20))
assert sum(tier.stats().drops.values()) > 0
assert stored > 100
assert served(tier, headers_of(0, 20)) in (0, 20)
tier.close()
print("well")
"""


def test_a_real_limit_on_file_sizes_is_survived(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "cache")], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "well\n", done.stderr


def test_rows_that_failed_do_not_stop_the_others(filled: Path) -> None:
    tier = opened(filled)
    victim = min(filled.glob("*.segment"))
    flip(victim, (victim.stat().st_size - 100) * 8)
    mask = tier.get(HEADERS, rows(len(HEADERS)))
    assert mask.sum() == len(HEADERS) - 1
    assert tier.stats().drops == {DropReason.CHECKSUM: 1}
    assert tier.put(HEADERS, payloads(HEADERS)).all()
    assert served(tier, HEADERS) == len(HEADERS)
    tier.close()
