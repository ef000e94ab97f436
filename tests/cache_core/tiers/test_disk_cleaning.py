"""Cleaning gives dead room back and loses no live block."""

import errno
from pathlib import Path

import pytest

from cache_core.drop_reason import DropReason
from cache_core.tiers.codec import Codec
from cache_core.tiers.disk import DiskTier
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
