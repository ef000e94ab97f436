"""A purged identity is gone: from every answer at once, from every file for good, after crashes too."""

import errno
import threading
from pathlib import Path

import pytest

from cache_core.block_header import BlockHeader, Body
from cache_core.drop_reason import DropReason
from cache_core.tiers.codec import Codec
from cache_core.tiers.disk import DiskTier
from cache_core.tiers.disk.index import IndexFailedError
from cache_core.tiers.disk.purge import PurgeJournal
from cache_core.tiers.errors import PurgeFailedError
from tests.cache_core.tiers.blocks import (
    IDENTITY,
    OTHER,
    FaultyFiles,
    headers_of,
    opened,
    payload,
    payloads,
    put,
    rows,
    served,
)

OURS, THEIRS = headers_of(0, 6), headers_of(0, 6, OTHER)
PLAIN = Codec()


def on_disk(folder: Path, *needles: bytes) -> bool:
    files = [path.read_bytes() for path in folder.iterdir() if path.suffix == ".segment"]
    return any(needle in file for needle in needles for file in files)


def mixed(folder: Path, files: FaultyFiles | None = None, codec: Codec = PLAIN) -> DiskTier:
    tier = opened(folder, files, codec=codec, segment_bytes=60 << 10)
    for ours, theirs in zip(OURS, THEIRS, strict=True):
        put(tier, [ours, theirs])
    return tier


@pytest.mark.parametrize("punch", [True, False])
@pytest.mark.parametrize("codec", [Codec(), Codec(compression=1, key=b"k" * 32)], ids=["plain", "coded"])
def test_one_identity_goes_and_the_other_stays(tmp_path: Path, codec: Codec, punch: bool) -> None:
    files = FaultyFiles()
    if not punch:
        files.fail("punch")
    tier = mixed(tmp_path, files, codec)
    tier.delete([OURS[0].key])  # its bytes are still there, dead
    assert tier.purge(IDENTITY) == len(OURS) - 1
    for _ in range(2):
        assert served(tier, OURS) == 0
        assert served(tier, THEIRS) == len(THEIRS)
        assert not on_disk(tmp_path, *(header.own for header in OURS), *map(payload, OURS))
        assert on_disk(tmp_path, THEIRS[0].own)
        tier.close()
        for path in tmp_path.glob("index*"):
            path.unlink()  # an index made anew must not bring it back
        tier = opened(tmp_path, codec=codec)
    assert put(tier, OURS) == served(tier, OURS) == len(OURS), "a purge is no ban"
    tier.close()


def test_a_purge_that_was_interrupted_is_finished_at_the_next_start(tmp_path: Path) -> None:
    tier = mixed(tmp_path)
    tier.close()
    PurgeJournal(tmp_path).add(IDENTITY)  # all that a crash right after the beginning leaves
    tier = opened(tmp_path)
    assert served(tier, OURS) == 0
    assert served(tier, THEIRS) == len(THEIRS)
    assert not on_disk(tmp_path, *(header.own for header in OURS))
    assert PurgeJournal(tmp_path).pending() == []
    tier.close()


def test_what_cannot_be_erased_is_dropped_as_a_whole(tmp_path: Path) -> None:
    files = FaultyFiles()
    tier = mixed(tmp_path, files)
    files.fail("sync", "punch")
    tier.purge(IDENTITY)
    files.heal()
    assert served(tier, OURS) == served(tier, THEIRS) == 0
    assert not on_disk(tmp_path, OURS[0].own)
    tier.close()


def test_a_segment_with_a_damaged_record_is_dropped_as_a_whole(tmp_path: Path) -> None:
    tier = mixed(tmp_path)
    first = min(tmp_path.glob("*.segment"))
    data = bytearray(first.read_bytes())
    data[100] ^= 1  # whose record this is cannot be said any more
    first.write_bytes(data)
    tier.purge(IDENTITY)
    assert not first.exists()
    assert served(tier, OURS) == 0
    tier.close()


def test_a_purge_that_fails_says_so_serves_nothing_and_is_tried_again(tmp_path: Path) -> None:
    files = FaultyFiles()
    tier = mixed(tmp_path, files)
    files.fail("open", "unlink", with_errno=errno.EROFS)
    with pytest.raises(PurgeFailedError):
        tier.purge(IDENTITY)
    files.heal()
    assert served(tier, OURS) == 0
    tier.close()
    tier = opened(tmp_path)
    assert served(tier, OURS) == 0
    assert served(tier, THEIRS) == len(THEIRS)
    assert not on_disk(tmp_path, OURS[0].own)
    tier.close()


def test_a_read_under_way_hands_nothing_out_after_the_purge(tmp_path: Path) -> None:
    files = FaultyFiles()
    tier = mixed(tmp_path, files)
    files.going.clear()
    reading = threading.Event()
    out, masks = rows(len(OURS)), []

    def read() -> None:
        reading.set()
        masks.append(tier.get(OURS, out, timeout=60))

    thread = threading.Thread(target=read)
    thread.start()
    reading.wait()
    while not tier._reader._pool._pool.busy:
        pass  # until the read is with the disk
    with tier._write:
        tier._purges.add(IDENTITY)
        tier._catalog.index.remove_identity(IDENTITY)
    files.going.set()
    thread.join()
    assert not masks[0].any()
    assert not out.any()
    assert tier.stats().drops == {DropReason.PURGED: len(OURS)}
    tier.close()


def test_a_write_that_began_before_the_purge_is_not_stored_after_it(tmp_path: Path) -> None:
    tier = opened(tmp_path)

    class PurgingCodec(Codec):
        def encode(self, header: BlockHeader, payload: memoryview) -> Body:
            tier.purge(IDENTITY)
            return Codec.encode(self, header, payload)

    object.__setattr__(tier.options, "codec", PurgingCodec())
    assert not tier.put(OURS, payloads(OURS)).any()
    assert served(tier, OURS) == 0
    assert tier.stats().drops == {DropReason.PURGED: len(OURS)}
    tier.close()


def test_what_the_index_never_knew_does_not_stay_in_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = mixed(tmp_path)
    before = {path: path.stat().st_size for path in tmp_path.glob("*.segment")}

    def fail(*_: object) -> None:
        raise IndexFailedError("no room")

    monkeypatch.setattr(tier._catalog.index, "add", fail)
    assert put(tier, headers_of(700, 3)) == 0
    assert tier.stats().drops == {DropReason.INDEX_ERROR: 3}
    assert sum(path.stat().st_size for path in tmp_path.glob("*.segment")) == sum(before.values())
    tier.close()
    last = max(before)
    last.write_bytes(last.read_bytes() + min(before).read_bytes())  # written, then killed
    tier = opened(tmp_path)
    assert {path: path.stat().st_size for path in before} == before
    assert served(tier, OURS + THEIRS) == len(OURS + THEIRS)
    tier.close()
