"""Host to a real disk tier and back, straight through the host's rows."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cache_core.drop_reason import DropReason
from cache_core.tiers.disk import DiskTier
from cache_core.tiers.host import HostTier
from cache_core.transfer import TransferEngine
from cache_core.transfer.tier_jobs import HostToTier, TierToHost
from tests.cache_core.tiers.blocks import BLOCK, SIZE, FaultyFiles, headers_of, opened, put, served

PATIENCE = 30.0


@pytest.fixture
def engine() -> Iterator[TransferEngine]:
    engine = TransferEngine()
    yield engine
    assert engine.close(PATIENCE)


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def disk(tmp_path: Path, files: FaultyFiles) -> Iterator[DiskTier]:
    disk = opened(tmp_path / "disk", files)
    yield disk
    disk.close()


def host_of(blocks: int) -> HostTier:
    return HostTier(blocks * SIZE, SIZE, BLOCK)


def test_spilled_blocks_come_back_right(engine: TransferEngine, disk: DiskTier) -> None:
    headers = headers_of(0, 10)
    first, second = host_of(10), host_of(10)
    put(first, headers)
    spill = HostToTier(first, disk, "disk", headers, piece_blocks=3)
    assert engine.submit(spill).wait(PATIENCE)
    assert spill.stored.all()
    fetch = TierToHost(disk, "disk", second, headers, piece_blocks=4)
    assert engine.submit(fetch).wait(PATIENCE)
    assert fetch.served.all()
    assert served(second, headers) == 10
    first.check_integrity()
    second.check_integrity()


def test_what_the_disk_does_not_have_is_not_in_the_host_afterwards(
    engine: TransferEngine, disk: DiskTier
) -> None:
    there, host = headers_of(0, 3), host_of(8)
    put(disk, there)
    wanted = [*there, *headers_of(500, 2)]
    fetch = TierToHost(disk, "disk", host, wanted)
    transfer = engine.submit(fetch)
    assert transfer.wait(PATIENCE)
    assert transfer.moved_bytes == 3 * SIZE
    assert fetch.served.tolist() == [True] * 3 + [False] * 2
    assert host.contains([header.key for header in wanted]).tolist() == fetch.served.tolist()
    host.check_integrity()


def test_a_disk_that_fails_gives_nothing_and_leaves_the_host_whole(
    engine: TransferEngine, disk: DiskTier, files: FaultyFiles
) -> None:
    headers, host = headers_of(0, 4), host_of(4)
    put(disk, headers)
    files.fail("read")
    fetch = TierToHost(disk, "disk", host, headers)
    transfer = engine.submit(fetch)
    transfer.wait(PATIENCE)
    assert not fetch.served.any()
    assert served(host, headers) == 0
    assert transfer.moved_bytes == 0, "what did not come is not measured as if it had, in no time"
    assert DropReason.IO_ERROR in disk.stats().drops
    assert put(host, headers_of(700, 4)) == 4, "the rows that were meant for them are free"


def test_a_cancelled_fetch_keeps_what_arrived_and_frees_the_rest(
    disk: DiskTier, engine: TransferEngine
) -> None:
    headers, host = headers_of(0, 6), host_of(6)
    put(disk, headers)
    fetch = TierToHost(disk, "disk", host, headers, piece_blocks=1)
    transfer = engine.submit(fetch)
    assert transfer.cancel(PATIENCE)
    arrived = int(fetch.served.sum())
    assert served(host, headers) == arrived
    host.check_integrity()
    assert put(host, headers_of(900, 6 - arrived)) == 6 - arrived


def test_two_fetches_of_one_block_fill_it_once(disk: DiskTier, engine: TransferEngine) -> None:
    headers, host = headers_of(0, 4), host_of(8)
    put(disk, headers)
    first = TierToHost(disk, "disk", host, headers)
    second = TierToHost(disk, "disk", host, headers)
    assert len(second.pieces) == 0
    assert engine.submit(second).wait(PATIENCE)
    assert engine.submit(first).wait(PATIENCE)
    assert served(host, headers) == 4
    assert np.array_equal(first.served, np.ones(4, dtype=np.bool_))


def test_what_a_disk_refused_is_not_counted_as_moved(
    engine: TransferEngine, disk: DiskTier, files: FaultyFiles
) -> None:
    headers, host = headers_of(0, 4), host_of(4)
    put(host, headers)
    files.fail("write")
    transfer = engine.submit(HostToTier(host, disk, "disk", headers))
    assert transfer.wait(PATIENCE)
    assert transfer.moved_bytes == 0
    files.heal()
    transfer = engine.submit(HostToTier(host, disk, "disk", headers))
    assert transfer.wait(PATIENCE)
    assert transfer.moved_bytes == 4 * SIZE


def test_a_bit_that_flipped_in_the_host_does_not_go_to_a_colder_tier_as_if_it_were_right(
    engine: TransferEngine, disk: DiskTier
) -> None:
    headers, host = headers_of(0, 4), host_of(4)
    put(host, headers)
    host.rows[int(host.pin(headers)[1]), 17] ^= 4
    spill = HostToTier(host, disk, "disk", headers)
    assert engine.submit(spill).wait(PATIENCE)
    assert spill.stored.tolist() == [True, False, True, True]
    assert host.stats().drops == {DropReason.CHECKSUM: 1}
    assert served(disk, headers) == 3
