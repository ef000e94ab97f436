"""A real file system that is full, then read-only."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cache_core.tiers.errors import TierError
from tests.cache_core.tiers.blocks import headers_of, opened, put, served
from tests.requirements import require_that


def mount(*arguments: str) -> bool:
    try:
        return subprocess.run(["mount", *arguments], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A volume of one megabyte."""
    folder = tmp_path / "volume"
    folder.mkdir()
    mounted = mount("-t", "tmpfs", "-o", "size=1m,mode=700", "none", str(folder))
    require_that(mounted, "no small volume can be mounted: that needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_volume_is_survived_and_used(volume: Path) -> None:
    tier = opened(volume / "cache", capacity_bytes=8 << 20, segment_bytes=64 << 10)
    stored = sum(put(tier, headers_of(i * 100, 5)) for i in range(80))
    assert sum(tier.stats().drops.values()) > 0
    assert stored > 120, "more than fits: it makes room for itself"
    assert sum(served(tier, headers_of(i * 100, 5)) for i in range(80)) > 0
    tier.close()
    tier = opened(volume / "cache", capacity_bytes=8 << 20, segment_bytes=64 << 10)
    assert sum(served(tier, headers_of(i * 100, 5)) for i in range(80)) > 0
    tier.close()


def test_a_volume_that_becomes_read_only_is_still_read(volume: Path) -> None:
    headers = headers_of(0, 5)
    tier = opened(volume / "cache", capacity_bytes=512 << 10, segment_bytes=32 << 10)
    put(tier, headers)
    tier.close()
    assert mount("-o", "remount,ro", str(volume))
    with pytest.raises(TierError, match="cannot be used"):
        opened(volume / "cache")
    assert mount("-o", "remount,rw", str(volume))
    tier = opened(volume / "cache", capacity_bytes=512 << 10)
    assert served(tier, headers) == 5
    tier.close()
