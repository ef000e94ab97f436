"""What is stored comes back, also after a restart, within a budget."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from cache_core.block_header import BlockHeader
from cache_core.drop_reason import DropReason
from cache_core.tiers.codec import Codec
from cache_core.tiers.disk import DiskOptions
from cache_core.tiers.errors import TierError
from cache_core.tiers.quantize import Quantization
from tests.cache_core.tiers.blocks import IDENTITY, SIZE, headers_of, opened, payload, put, rows, served

CODECS = {
    "plain": Codec(),
    "compressed": Codec(compression=1),
    "encrypted": Codec(key=b"k" * 32),
    "both": Codec(compression=1, key=b"k" * 32),
}


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("size", [1, 100, 4096, 5000, 3 * 4096])
def test_blocks_come_back_in_every_form(tmp_path: Path, codec: Codec, direct: bool, size: int) -> None:
    headers = headers_of(0, 9)
    tier = opened(tmp_path, codec=codec, direct=direct, read_bytes=20_000)
    assert put(tier, headers, size) == 9
    assert served(tier, headers, size) == 9
    assert served(tier, headers[::-2], size, timeout=60) == 5
    tier.close()
    tier = opened(tmp_path, codec=codec, direct=not direct)
    assert served(tier, headers, size) == 9
    assert tier.stats().blocks == 9
    tier.close()


def test_rows_that_direct_reads_cannot_use_are_served_as_well(tmp_path: Path) -> None:
    headers = headers_of(0, 3)
    tier = opened(tmp_path)
    put(tier, headers)
    buffers = [memoryview(bytearray(SIZE + i))[i:] for i in range(3)]
    assert tier.get(headers, buffers).all()
    assert [bytes(buffer) for buffer in buffers] == [payload(header) for header in headers]
    tier.close()


def test_what_is_not_there_is_a_miss(tmp_path: Path) -> None:
    tier = opened(tmp_path)
    put(tier, headers_of(0, 2))
    asked = headers_of(0, 2) + headers_of(100, 3)
    assert tier.get(asked, rows(5)).tolist() == [True, True, False, False, False]
    assert tier.contains([header.key for header in asked]).tolist() == [True, True, False, False, False]
    stats = tier.stats()
    assert (stats.hits, stats.misses, stats.drops) == (2, 3, {})
    tier.close()


def test_empty_calls_are_fine(tmp_path: Path) -> None:
    tier = opened(tmp_path)
    assert len(tier.put([], rows(0))) == len(tier.get([], rows(0))) == len(tier.contains([])) == 0
    assert tier.delete([]) == tier.clean() == tier.purge(IDENTITY) == 0
    tier.close()


def test_a_block_is_written_once(tmp_path: Path) -> None:
    headers = headers_of(0, 3)
    tier = opened(tmp_path)
    assert put(tier, headers + headers) == 6
    used = tier.stats().used_bytes
    assert put(tier, headers) == 3
    assert (tier.stats().stored, tier.stats().used_bytes) == (3, used)
    tier.close()


def test_what_is_deleted_is_gone_after_a_restart_too(tmp_path: Path) -> None:
    headers = headers_of(0, 4)
    tier = opened(tmp_path)
    put(tier, headers)
    assert tier.delete([header.key for header in headers[:2]] + [b"?" * 36]) == 2
    for _ in range(2):
        assert tier.get(headers, rows(4)).tolist() == [False, False, True, True]
        tier.close()
        tier = opened(tmp_path)
    tier.close()


def test_over_budget_the_longest_unused_go_first(tmp_path: Path) -> None:
    tier = opened(tmp_path, capacity_bytes=1 << 20, segment_bytes=64 << 10)
    old, used = headers_of(0, 8), headers_of(1000, 8)
    put(tier, old)
    put(tier, used)
    for round_number in range(30):
        assert served(tier, used[:1]) == 1
        put(tier, headers_of(10_000 + round_number * 100, 8))
        assert (tier.stats().used_bytes or 0) <= 1 << 20
    assert served(tier, old) == 0
    assert served(tier, used) == 8
    assert (tier.stats().evicted or 0) > 0
    tier.close()


def test_touched_blocks_count_as_used(tmp_path: Path) -> None:
    tier = opened(tmp_path, capacity_bytes=1 << 20, segment_bytes=64 << 10)
    kept = headers_of(0, 8)
    put(tier, kept)
    for round_number in range(30):
        tier.touch([kept[0].key])
        put(tier, headers_of(10_000 + round_number * 100, 8))
    assert served(tier, kept) == 8
    tier.close()


def test_a_smaller_budget_holds_from_the_start(tmp_path: Path) -> None:
    tier = opened(tmp_path, segment_bytes=64 << 10)
    for i in range(20):
        put(tier, headers_of(i * 100, 8))
    tier.close()
    tier = opened(tmp_path, capacity_bytes=512 << 10)
    assert (tier.stats().used_bytes or 0) <= 512 << 10
    tier.close()


def test_the_order_of_use_outlives_a_restart(tmp_path: Path) -> None:
    tier = opened(tmp_path, segment_bytes=40 << 10)
    for i in range(10):
        put(tier, headers_of(i * 100, 5))
    assert served(tier, headers_of(0, 5)) == 5
    tier.close()
    tier = opened(tmp_path, capacity_bytes=400 << 10, segment_bytes=40 << 10)
    assert served(tier, headers_of(0, 5)) == 5, "used last, though written first"
    assert served(tier, headers_of(100, 5)) == 0
    tier.close()


def test_more_than_fits_is_dropped_and_counted(tmp_path: Path) -> None:
    tier = opened(tmp_path, capacity_bytes=100_000)
    headers = headers_of(0, 1)
    assert put(tier, headers, size=200_000) == 0
    assert tier.stats().drops == {DropReason.TOO_LARGE: 1}
    tier.close()


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        folder = tmp_path / "cache"
        folder.mkdir(mode=0o777)
        tier = opened(folder)
        put(tier, headers_of(0, 2))
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        assert set(modes.values()) == {0o600}, modes
        tier.close()
    finally:
        os.umask(old)


def test_nothing_readable_is_in_an_encrypted_folder(tmp_path: Path) -> None:
    tokens = np.arange(7000, 7064, dtype=np.int32).tobytes()
    header = BlockHeader(IDENTITY, b"p" * 32, b"o" * 32, tokens)
    for codec, found in ((Codec(), True), (Codec(key=b"k" * 32), False)):
        folder = tmp_path / str(found)
        tier = opened(folder, codec=codec)
        assert put(tier, [header]) == 1
        tier.close()
        files = b"".join(path.read_bytes() for path in folder.iterdir())
        assert (payload(header)[:64] in files) is found
        assert (tokens in files) is found


def test_another_key_reads_nothing(tmp_path: Path) -> None:
    headers = headers_of(0, 3)
    tier = opened(tmp_path, codec=Codec(key=b"k" * 32))
    put(tier, headers)
    tier.close()
    for codec in (Codec(key=b"x" * 32), Codec()):
        tier = opened(tmp_path, codec=codec)
        assert served(tier, headers[:1] if codec.key else headers[1:]) == 0
        assert set(tier.stats().drops) == {DropReason.UNDECODABLE}
        tier.close()


def test_compression_saves_room(tmp_path: Path) -> None:
    used = []
    headers = headers_of(0, 10)
    values = np.tile(np.linspace(-1, 1, SIZE * 2, dtype=np.float16).view(np.uint8), (10, 1))
    for name in ("plain", "compressed"):
        tier = opened(tmp_path / name, codec=CODECS[name])
        assert tier.put(headers, values).all()
        out = rows(10, values.shape[1])
        assert tier.get(headers, out).all()
        assert (out == values).all()
        used.append(sum(path.stat().st_size for path in (tmp_path / name).glob("*.segment")))
        tier.close()
    assert used[1] < used[0] / 1.5


def test_a_closed_tier_says_so(tmp_path: Path) -> None:
    tier = opened(tmp_path)
    tier.close()
    tier.close()
    with pytest.raises(TierError):
        tier.contains([b"k"])


@pytest.mark.parametrize("bad", [{"capacity_bytes": 0}, {"segment_bytes": 0}, {"queue_depth": 0}])
def test_impossible_options_are_refused(tmp_path: Path, bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least one"):
        DiskOptions(**{"folder": tmp_path, "capacity_bytes": 1, **bad})  # type: ignore[arg-type]


def test_a_cleared_tier_is_empty_and_takes_new_blocks(tmp_path: Path) -> None:
    tier = opened(tmp_path)
    put(tier, headers_of(0, 5))
    assert tier.clear() == 5
    assert tier.clear() == 0
    assert not list(tmp_path.glob("*.segment"))
    assert served(tier, headers_of(0, 5)) == 0
    assert put(tier, headers_of(0, 3)) == 3
    tier.close()
    tier = opened(tmp_path)
    assert served(tier, headers_of(0, 5)) == 3
    tier.close()


@pytest.mark.parametrize("form", ["int8", "fp8"])
def test_blocks_over_the_bound_are_stored_exactly_and_counted(tmp_path: Path, form: str) -> None:
    bound = Quantization("float32", 0.03, form=form)  # type: ignore[arg-type]
    tier = opened(tmp_path, codec=Codec(compression=1, quantization=bound))
    headers = headers_of(0, 3)
    smooth = np.random.default_rng(0).standard_normal((3, SIZE // 4)).astype(np.float32)
    smooth[1, ::64] = 1e30  # the bytes of a block that no scale fits
    smooth[1, 1::64] = np.nan
    blocks = smooth.view(np.uint8)
    assert tier.put(headers, blocks).all()
    out = rows(3)
    assert tier.get(headers, out).all()
    assert (out[1] == blocks[1]).all()
    off = np.square(out.view(np.float32)[[0, 2]] - smooth[[0, 2]]).mean(axis=1)
    assert (off > 0).all()
    assert (np.sqrt(off) <= 0.03 * np.sqrt(np.square(smooth[[0, 2]]).mean(axis=1))).all()
    assert (tier.stats().quantized, tier.stats().kept_exact) == (2, 1)
    tier.close()
