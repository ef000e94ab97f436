"""On disk, too, nobody loses blocks to a scope that floods the cache; and who is purged goes by whole segments."""

from pathlib import Path

import pytest

from cache_core.block_header import BlockHeader
from cache_core.errors import IntegrityError
from cache_core.tiers.disk import DiskTier, catalog, writer
from tests.cache_core.tiers.blocks import IDENTITY, OTHER, FaultyFiles, headers_of, opened, put, served

CAPACITY = 1 << 20
QUIET = headers_of(0, 20)  # some 160 KiB of it


def share_of(folder: Path, share: float = 0.25, files: FaultyFiles | None = None) -> DiskTier:
    return opened(folder, files, capacity_bytes=CAPACITY, scope_share=share)


def flood(tier: DiskTier, identity: bytes = OTHER, prompts: int = 40) -> None:
    """Twice what there is room for."""
    for number in range(prompts):
        assert put(tier, headers_of(1000 * number, 6, identity)) == 6


def there(tier: DiskTier, headers: list[BlockHeader]) -> int:
    return int(tier.contains([header.key for header in headers]).sum())


def test_a_scope_that_floods_the_disk_takes_nothing_from_one_within_its_share(tmp_path: Path) -> None:
    tier = share_of(tmp_path)
    assert put(tier, QUIET) == 20
    flood(tier)
    assert served(tier, QUIET) == 20
    evicted = tier.stats().evicted
    assert evicted is not None
    assert evicted > 100, "the other's own"
    used = tier.stats().used_bytes
    assert used is not None
    assert used <= CAPACITY
    tier.close()


def test_without_shares_it_takes_all(tmp_path: Path) -> None:
    tier = share_of(tmp_path, 1.0)
    put(tier, QUIET)
    flood(tier)
    assert there(tier, QUIET) == 0
    tier.close()


def test_alone_a_scope_takes_all_and_its_oldest_goes(tmp_path: Path) -> None:
    tier = share_of(tmp_path)
    flood(tier, IDENTITY)
    assert tier.stats().blocks is not None
    assert tier.stats().blocks > 60, "much more than a quarter"  # type: ignore[operator]
    assert there(tier, headers_of(39_000, 6)) == 6
    assert there(tier, headers_of(0, 6)) == 0
    tier.close()


@pytest.mark.parametrize("index_lost", [False, True])
def test_a_start_knows_whose_the_segments_are(tmp_path: Path, index_lost: bool) -> None:
    tier = share_of(tmp_path)
    put(tier, QUIET)
    tier.close()
    for path in tmp_path.glob("index*") if index_lost else ():
        path.unlink()
    tier = share_of(tmp_path)
    flood(tier)
    assert served(tier, QUIET) == 20
    tier.close()


def test_segments_from_before_there_were_shares_make_room(tmp_path: Path) -> None:
    tier = share_of(tmp_path, 1.0)
    for number in range(4):
        put(tier, headers_of(10_000 * number, 12))
        put(tier, headers_of(10_000 * number, 12, OTHER))
    tier.close()
    tier = share_of(tmp_path)
    flood(tier, b"t" * 32)
    flood(tier, b"u" * 32)
    assert there(tier, [*headers_of(0, 12), *headers_of(30_000, 12)]) == 0
    assert tier.stats().drops == {}
    tier.close()


def test_a_purge_of_a_scope_reads_and_writes_no_segment(tmp_path: Path) -> None:
    files = FaultyFiles()
    tier = share_of(tmp_path, files=files)
    for number in range(5):
        put(tier, headers_of(100 * number, 4))
        put(tier, headers_of(100 * number, 4, OTHER))
    files.fail("read", "write", "open", "punch", "sync")  # what is slow where a disk is busy
    assert tier.purge(OTHER) == 20
    files.heal()
    assert not any(b"o" * 32 in path.read_bytes() for path in tmp_path.glob("*.segment"))
    assert sum(served(tier, headers_of(100 * number, 4)) for number in range(5)) == 20
    assert put(tier, headers_of(0, 4, OTHER)) == served(tier, headers_of(0, 4, OTHER)) == 4
    tier.close()


def test_damage_is_found_and_named(tmp_path: Path) -> None:
    tier = share_of(tmp_path)
    put(tier, QUIET)
    tier.check_integrity()
    segment = next(iter(tier._catalog.segments.values()))
    segment.owner = OTHER
    with pytest.raises(IntegrityError, match="another scope"):
        tier.check_integrity()
    segment.owner, segment.size = None, segment.size - 4096
    with pytest.raises(IntegrityError, match="behind the end"):
        tier.check_integrity()
    del tier._catalog.segments[segment.number]
    with pytest.raises(IntegrityError, match="not there"):
        tier.check_integrity()
    tier.close()


def test_of_more_scopes_than_may_write_at_once_everything_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_ACTIVE", 2)
    tier = share_of(tmp_path)
    chains = [headers_of(0, 2, bytes([number]) * 32) for number in range(6)]
    for chain in chains:
        assert put(tier, chain[:1]) == 1
    for chain in chains:
        assert put(tier, chain) == 2
    assert [served(tier, chain) for chain in chains] == [2] * 6
    assert len(list(tmp_path.glob("*.segment"))) == 12
    tier.close()


def test_what_is_written_on_is_opened_again_where_others_took_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "_OPEN_FILES", 1)
    tier = share_of(tmp_path)
    ours, theirs = headers_of(0, 4), headers_of(0, 4, OTHER)
    for block in range(4):
        assert put(tier, ours[block : block + 1]) == 1
        assert put(tier, theirs[block : block + 1]) == 1
    assert served(tier, ours) == served(tier, theirs) == 4
    assert tier.stats().drops == {}
    assert len(list(tmp_path.glob("*.segment"))) == 2
    tier.close()
