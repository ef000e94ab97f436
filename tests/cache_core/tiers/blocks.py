"""Blocks whose bytes say which block they are, and disks that fail on demand."""

import errno
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cache_core.block_hash import chain_hashes, root_hash
from cache_core.block_header import BlockHeader
from cache_core.tiers.disk import DiskOptions, DiskTier
from cache_core.tiers.files import Files

BLOCK = 4  # tokens
SIZE = 4096  # bytes of a payload
IDENTITY, OTHER = b"i" * 32, b"o" * 32


def headers_of(first: int, count: int, identity: bytes = IDENTITY) -> list[BlockHeader]:
    """A chain of `count` blocks; `first` says which."""
    tokens = np.arange(first, first + count * BLOCK, dtype=np.int32)
    root = root_hash(identity)
    hashes = chain_hashes(root, tokens, BLOCK)
    return [
        BlockHeader(identity, parent, own, tokens[i * BLOCK : (i + 1) * BLOCK].tobytes())
        for i, (parent, own) in enumerate(zip([root, *hashes[:-1]], hashes, strict=True))
    ]


def payload(header: BlockHeader, size: int = SIZE) -> bytes:
    """The one right content of a block."""
    return hashlib.shake_128(header.key).digest(size)


def payloads(headers: Sequence[BlockHeader], size: int = SIZE) -> NDArray[np.uint8]:
    """uint8 [n, size]."""
    whole = b"".join(payload(header, size) for header in headers)
    return np.frombuffer(whole, dtype=np.uint8).reshape(len(headers), size)


def rows(count: int, size: int = SIZE) -> NDArray[np.uint8]:
    """Room to read to, in memory that direct I/O takes as it is."""
    memory = np.zeros(count * size + 4096, dtype=np.uint8)
    start = -memory.ctypes.data % 4096
    return memory[start : start + count * size].reshape(count, size)


def served(tier: Any, headers: Sequence[BlockHeader], size: int = SIZE, timeout: float | None = None) -> int:
    """How many of these blocks come back; every one that does must be right."""
    out = rows(len(headers), size)
    mask = tier.get(headers, out, timeout)
    for row in np.flatnonzero(mask).tolist():
        assert out[row].tobytes() == payload(headers[row], size), "wrong bytes were served"
    return int(mask.sum())


def put(tier: Any, headers: Sequence[BlockHeader], size: int = SIZE) -> int:
    """Store the right content; says how many blocks were taken."""
    return int(tier.put(headers, payloads(headers, size)).sum())


def options(folder: Path, **changes: Any) -> DiskOptions:
    """Small, and quick on a slow disk."""
    return DiskOptions(**{"folder": folder, "capacity_bytes": 8 << 20, "sync": False, **changes})


def opened(folder: Path, files: Files | None = None, **changes: Any) -> DiskTier:
    return DiskTier(options(folder, **changes), files)


class FaultyFiles(Files):
    """A disk that fails by errno, operation by operation, or hangs until it is let go."""

    def __init__(self) -> None:
        self.errors: dict[str, int] = {}  # by method name
        self.short_writes = False
        self.going = threading.Event()
        self.going.set()
        self.hook: Callable[[str], None] = lambda _: None

    def fail(self, *methods: str, with_errno: int = errno.EIO) -> None:
        self.errors |= dict.fromkeys(methods, with_errno)

    def heal(self) -> None:
        self.errors.clear()

    def _may(self, method: str) -> None:
        self.hook(method)
        if method in self.errors:
            raise OSError(self.errors[method], os.strerror(self.errors[method]))

    def open(self, path: Path, flags: int) -> int:
        self._may("open")
        return super().open(path, flags)

    def read(self, handle: int, buffers: Sequence[memoryview], offset: int) -> int:
        self.going.wait()
        self._may("read")
        return super().read(handle, buffers, offset)

    def write(self, handle: int, data: memoryview, offset: int) -> int:
        if self.short_writes and len(data) > 4096:
            return super().write(handle, data[:4096], offset)
        self._may("write")
        return super().write(handle, data, offset)

    def sync(self, handle: int) -> None:
        self._may("sync")
        super().sync(handle)

    def unlink(self, path: Path) -> None:
        self._may("unlink")
        super().unlink(path)

    def truncate(self, path: Path, size: int) -> None:
        self._may("truncate")
        super().truncate(path, size)

    def punch(self, handle: int, offset: int, length: int) -> bool:
        if "punch" in self.errors:
            return False
        return super().punch(handle, offset, length)
