"""The disk tier against raw parallel reads of its own files, and against one `torch.save` file a block."""

import os
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.measure import alternate, seconds
from cache_core.block_hash import chain_hashes, root_hash
from cache_core.block_header import BlockHeader
from cache_core.memory import anonymous_memory
from cache_core.tiers.disk import DiskOptions, DiskTier
from cache_core.tiers.files import aligned_buffer

_IDENTITY = b"b" * 32
_BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class DiskFigures:
    """Medians of alternating runs, payload bytes a second. Caches are passed by or dropped before each read."""

    blocks: int
    block_bytes: int
    read_bytes: int  # of one read
    queue_depth: int
    direct: bool  # False: page cache, dropped before each run
    tier: float  # through the tier, every check included
    raw: float  # the same files in reads of the same size, as many at once, nothing done with them
    one_file_a_block: float | None  # torch.load of a file a block, one after the other; None: no torch

    @property
    def share(self) -> float:
        """The tier's rate over the raw one."""
        return self.tier / self.raw

    @property
    def over_files(self) -> float | None:
        """The tier's rate over that of one file a block."""
        return None if self.one_file_a_block is None else self.tier / self.one_file_a_block


def run(
    folder: Path | None = None,
    blocks: int = 300,
    block_bytes: int = 180 * 4096,
    rounds: int = 5,
) -> DiskFigures:
    """Write `blocks` random blocks into a new folder under `folder`, and read them in all three ways."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="kvgate-bench-") as place:
        options = DiskOptions(Path(place) / "tier", 4 * blocks * block_bytes)
        headers, payloads = _headers(blocks), _payloads(blocks, block_bytes)
        tier = DiskTier(options)
        try:
            if not tier.put(headers, payloads).all():
                raise RuntimeError("the tier did not take the blocks: is the disk full?")
            saved = _save_files(Path(place) / "files", payloads)
            return _measured(tier, headers, payloads, saved, rounds)
        finally:
            tier.close()


def _measured(
    tier: DiskTier, headers: list[BlockHeader], payloads: NDArray[np.uint8], saved: list[Path], rounds: int
) -> DiskFigures:
    out = _rows(*payloads.shape)
    segments = sorted(tier.options.folder.glob("*.segment"))
    options = tier.options

    def through_tier() -> float:
        _drop_caches(segments)
        return seconds(lambda: tier.get(headers, out))

    def raw() -> float:
        _drop_caches(segments)
        return seconds(lambda: _read_raw(segments, options.read_bytes, options.queue_depth, tier.direct))

    def one_file_a_block() -> float:
        _drop_caches(saved)
        return seconds(lambda: _load_files(saved, out))

    cases = {"raw": raw, "tier": through_tier} | ({"files": one_file_a_block} if saved else {})
    figures = alternate(cases, rounds, lambda _: None)
    if not tier.get(headers, out).all() or not (out == payloads).all():
        raise RuntimeError("the tier did not give the blocks back")
    size, on_disk = payloads.nbytes, sum(path.stat().st_size for path in segments)
    return DiskFigures(
        blocks=len(headers),
        block_bytes=payloads.shape[1],
        read_bytes=options.read_bytes,
        queue_depth=options.queue_depth,
        direct=tier.direct,
        tier=size / figures["tier"],
        raw=on_disk / figures["raw"],
        one_file_a_block=size / figures["files"] if saved else None,
    )


def _headers(blocks: int) -> list[BlockHeader]:
    tokens = np.arange(blocks * _BLOCK_TOKENS, dtype=np.int32)
    root = root_hash(_IDENTITY)
    hashes = chain_hashes(root, tokens, _BLOCK_TOKENS)
    parts = tokens.reshape(blocks, _BLOCK_TOKENS)
    return [
        BlockHeader(_IDENTITY, parent, own, part.tobytes())
        for parent, own, part in zip([root, *hashes[:-1]], hashes, parts, strict=True)
    ]


def _payloads(blocks: int, block_bytes: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (blocks, block_bytes), dtype=np.uint8)


def _rows(blocks: int, block_bytes: int) -> NDArray[np.uint8]:
    """Rows of the memory that a host arena has, touched once so that no read pays for page faults."""
    rows = anonymous_memory(blocks * block_bytes).reshape(blocks, block_bytes)
    rows[:] = 1
    return rows


def _read_raw(paths: list[Path], read_bytes: int, depth: int, direct: bool) -> None:
    """Every byte of the files, `depth` reads at once."""
    flags = os.O_RDONLY | (os.O_DIRECT if direct else 0)
    handles = [os.open(path, flags) for path in paths]
    reads = _each_read(handles, paths, read_bytes)
    turn = threading.Lock()

    def work() -> None:
        buffer = aligned_buffer(read_bytes)
        while True:
            with turn:
                read = next(reads, None)
            if read is None:
                return
            os.preadv(read[0], [buffer], read[1])

    threads = [threading.Thread(target=work) for _ in range(depth)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for handle in handles:
        os.close(handle)


def _each_read(handles: list[int], paths: list[Path], read_bytes: int) -> Iterator[tuple[int, int]]:
    for handle, path in zip(handles, paths, strict=True):
        for offset in range(0, path.stat().st_size, read_bytes):
            yield handle, offset


def _save_files(folder: Path, payloads: NDArray[np.uint8]) -> list[Path]:
    """One torch file a block; none where there is no torch."""
    try:
        import torch
    except ImportError:
        return []
    folder.mkdir()
    paths = [folder / f"{row}.pt" for row in range(len(payloads))]
    for path, payload in zip(paths, payloads, strict=True):
        torch.save(torch.from_numpy(payload), path)
        _flush(path)
    return paths


def _load_files(paths: list[Path], out: NDArray[np.uint8]) -> None:
    """Into the same rows as the tier reads to."""
    import torch

    rows = torch.from_numpy(out)
    for row, path in enumerate(paths):
        rows[row].copy_(torch.load(path, weights_only=True))


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)
    os.fsync(handle)
    os.close(handle)


def _drop_caches(paths: list[Path]) -> None:
    """Out of the page cache with these files; they are flushed already."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)
