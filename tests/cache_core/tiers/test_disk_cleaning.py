"""Cleaning gives dead room back and loses no live block."""

import errno
from pathlib import Path

import pytest

from cache_core.drop_reason import DropReason
from cache_core.tiers.base import Watermarks
from cache_core.tiers.codec import Codec
from cache_core.tiers.disk import DiskTier
from cache_core.tiers.disk.index import DiskIndex
from tests.cache_core.tiers.blocks import FaultyFiles, headers_of, opened, put, served

HEADERS = headers_of(0, 40)
KEPT = HEADERS[::4]
PLAIN = Codec()


def mostly_dead(folder: Path, files: FaultyFiles | None = None, codec: Codec = PLAIN) -> DiskTier:
    tier = opened(folder, files, codec=codec, segment_bytes=80 << 10)
    put(tier, HEADERS)
    tier.delete([header.key for header in HEADERS if header not in KEPT])
    return tier


def segment_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.segment"))


@pytest.mark.parametrize("codec", [Codec(), Codec(key=b"k" * 32)], ids=["plain", "encrypted"])
def test_live_blocks_move_and_dead_ones_go(tmp_path: Path, codec: Codec) -> None:
    tier = mostly_dead(tmp_path, codec=codec)
    before = segment_bytes(tmp_path)
    freed = tier.clean()
    assert freed == before - segment_bytes(tmp_path) > before // 2
    for _ in range(2):
        assert served(tier, KEPT) == len(KEPT)
        assert served(tier, HEADERS) == len(KEPT)
        tier.close()
        tier = opened(tmp_path, codec=codec)
    assert tier.clean() == 0, "nothing is dead any more"
    tier.close()


@pytest.mark.parametrize("pieces", [0, 1, 2, 5])
def test_it_lets_go_between_two_pieces_and_goes_on_later(tmp_path: Path, pieces: int) -> None:
    tier = mostly_dead(tmp_path)
    asked = 0

    def goes_on() -> bool:
        nonlocal asked
        asked += 1
        return asked <= pieces

    before = segment_bytes(tmp_path)
    tier.clean(goes_on)
    assert pieces < asked <= pieces + 2, "nobody asks on who was told to end"
    assert segment_bytes(tmp_path) > before // 2
    assert served(tier, HEADERS) == len(KEPT)
    assert tier.clean() > 0
    assert segment_bytes(tmp_path) < before // 2
    assert served(tier, HEADERS) == len(KEPT)
    tier.close()


def test_a_full_segment_is_left_alone(tmp_path: Path) -> None:
    tier = opened(tmp_path, segment_bytes=80 << 10)
    put(tier, HEADERS)
    assert tier.clean() == 0
    assert served(tier, HEADERS) == len(HEADERS)
    tier.close()


def test_a_purge_after_cleaning_finds_what_was_moved(tmp_path: Path) -> None:
    tier = mostly_dead(tmp_path)
    tier.clean()
    tier.purge(HEADERS[0].identity)
    assert not any(any(path.read_bytes()) for path in tmp_path.glob("*.segment"))
    tier.close()


@pytest.mark.parametrize("method", ["write", "unlink", "open"])
def test_cleaning_on_a_failing_disk_loses_nothing(tmp_path: Path, method: str) -> None:
    files = FaultyFiles()
    tier = mostly_dead(tmp_path, files)
    files.fail(method, with_errno=errno.ENOSPC)
    tier.clean()
    files.heal()
    assert served(tier, KEPT) == len(KEPT)
    tier.clean()
    assert served(tier, KEPT) == len(KEPT)
    tier.close()


def test_a_damaged_block_is_dropped_not_moved(tmp_path: Path) -> None:
    tier = mostly_dead(tmp_path)
    first = min(tmp_path.glob("*.segment"))
    data = bytearray(first.read_bytes())
    data[4096 + 50] ^= 1
    first.write_bytes(data)
    tier.clean()
    assert tier.stats().drops == {DropReason.CHECKSUM: 1}
    assert served(tier, KEPT) == len(KEPT) - 1
    tier.close()


def test_where_nothing_died_since_the_last_look_the_index_is_not_gone_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = mostly_dead(tmp_path)
    looks, live_bytes = 0, DiskIndex.live_bytes

    def counted(index: DiskIndex) -> dict[int, tuple[int, int]]:
        nonlocal looks
        looks += 1
        return live_bytes(index)

    monkeypatch.setattr(DiskIndex, "live_bytes", counted)
    while tier.clean():
        pass
    tier.clean()
    looks = 0
    put(tier, headers_of(500, 4))
    assert served(tier, KEPT) == len(KEPT)
    for _ in range(5):
        assert tier.clean() == 0
    assert looks == 0
    tier.delete([header.key for header in KEPT])
    assert tier.clean() > 0
    assert looks == 1
    tier.close()


def test_whoever_looks_for_a_block_waits_for_one_segment_of_a_look_at_all(tmp_path: Path) -> None:
    tier = opened(tmp_path, segment_bytes=40 << 10)
    put(tier, HEADERS)
    index = tier._catalog.index
    taken = 0

    class Counted:
        def __enter__(self) -> None:
            nonlocal taken
            taken += 1

        def __exit__(self, *_: object) -> None:
            return

    index._read_lock = Counted()  # type: ignore[assignment]
    live = index.live_bytes()
    assert taken == len(live) + 1 > 4
    assert sum(count for _, count in live.values()) == index.count() == len(HEADERS)
    tier.close()


def test_between_the_watermarks_what_was_used_longest_ago_goes(tmp_path: Path) -> None:
    tier = opened(tmp_path, capacity_bytes=4 << 20, segment_bytes=80 << 10)
    put(tier, HEADERS)
    served(tier, HEADERS[:5])
    marks = Watermarks(0.05, 0.03)  # of the segments alone: an index does not shrink
    assert tier.clean(lambda: False, marks) == 0
    assert served(tier, HEADERS) == len(HEADERS)
    served(tier, HEADERS[:5])
    assert segment_bytes(tmp_path) > 0.05 * (4 << 20)
    assert tier.clean(marks=marks) > 0
    assert 0 < segment_bytes(tmp_path) <= 0.03 * (4 << 20)
    assert tier.stats().evicted == len(HEADERS) - served(tier, HEADERS)
    assert served(tier, HEADERS[:5]) == 5
    assert tier.clean(marks=marks) == 0
    tier.check_integrity()
    tier.close()


def test_sweeping_on_a_failing_disk_ends_and_is_counted(tmp_path: Path) -> None:
    files = FaultyFiles()
    tier = opened(tmp_path, files, segment_bytes=80 << 10)
    put(tier, HEADERS)
    files.fail("unlink", with_errno=errno.EIO)
    assert tier.clean(marks=Watermarks(0.0, 0.0)) == 0
    assert tier.stats().drops == {DropReason.IO_ERROR: 1}
    files.heal()
    assert served(tier, HEADERS) == len(HEADERS)
    assert tier.clean(marks=Watermarks(0.0, 0.0)) > 0
    assert served(tier, HEADERS) == 0
    tier.close()
