"""The store tier on a mounted folder that several machines share: one signed file a block.

Layout: `<folder>/<identity, hex>/<first two hex digits of the key>/<key, hex>`. Files appear by an atomic rename
and never change, so readers and writers of many processes need no lock. Whoever can write to the folder can put
anything into it: only a keyed MAC makes a file ours.
"""

import os
import secrets
import shutil
import stat
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cache_core.block_header import (
    KEY_IDENTITY_BYTES,
    BadBlockError,
    BlockHeader,
    DropReason,
    pack,
    unpack,
    verify,
)
from cache_core.metrics import CacheObserver, NullObserver
from cache_core.tiers.base import BlockBytes, Mask, Tier, TierCounters, TierStats, buffers_of
from cache_core.tiers.codec import Codec
from cache_core.tiers.errors import PurgeFailedError, TierError
from cache_core.tiers.files import Files, make_private, read_fully, reason_of, write_fully

_PART = ".part"
_SLACK = 64 << 10  # bytes a file may be longer than a plain one: padding of a codec, token ids
_PURGE_TRIES = 20  # writers elsewhere may still put a file into a folder that is being removed
_ABANDONED = 3600.0  # seconds a part may be older than the newest file, by the clock of the file system


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Everything about a store on a folder that can be chosen."""

    folder: Path
    capacity_bytes: int  # of all its users together; held when one of them cleans
    mac_key: bytes  # shared by all users and by nobody else, at least 16 bytes
    parallel: int = 8  # files read or written at once
    codec: Codec = field(default_factory=Codec)

    def __post_init__(self) -> None:
        if len(self.mac_key) < 16:
            raise ValueError("the MAC key of a shared store has at least 16 bytes")
        if self.capacity_bytes < 1 or self.parallel < 1:
            raise ValueError("capacity and parallel are at least one")


class StoreFolder(Tier):
    """Blocks in a folder shared with other processes, on this machine or on others."""

    def __init__(
        self, options: StoreOptions, files: Files | None = None, observer: CacheObserver | None = None
    ) -> None:
        """Open or make the folder.

        Raises:
            TierError: it cannot be made or entered.
        """
        self.options = options
        self._files = files or Files()
        self._observer = observer or NullObserver()
        self._counters = TierCounters("store", self._observer)
        self._pool = ThreadPoolExecutor(options.parallel, thread_name_prefix="kvgate-store")
        self._purges: dict[bytes, int] = {}  # by identity: the number of its last purge
        self._purge_count = 0
        try:
            make_private(options.folder)
        except OSError as error:
            raise TierError(f"{options.folder} cannot be used as a store: {error}") from error

    def put(self, headers: Sequence[BlockHeader], blocks: BlockBytes) -> Mask:
        payloads, began = buffers_of(blocks), self._purge_count
        futures = [
            self._pool.submit(self._put, header, payload, began)
            for header, payload in zip(headers, payloads, strict=True)
        ]
        return np.array([future.result() for future in futures], dtype=np.bool_)

    def get(self, headers: Sequence[BlockHeader], out: BlockBytes, timeout: float | None = None) -> Mask:
        call = _Call(self._purge_count)
        futures = [
            self._pool.submit(self._get, call, row, header, target)
            for row, (header, target) in enumerate(zip(headers, buffers_of(out), strict=True))
        ]
        done, late = wait(futures, timeout)
        with call.lock:
            call.over = True
        for future in late:
            future.cancel()
        for future in done:
            future.result()
        served = np.zeros(len(headers), dtype=np.bool_)
        for row in range(len(headers)):
            reason = call.results.get(row, DropReason.SLOW)
            served[row] = reason is None
            if reason is DropReason.MISSING:
                self._counters.add(misses=1)
            elif reason is not None:
                self._counters.drop(reason)
        self._counters.add(hits=int(served.sum()), read_bytes=call.read_bytes)
        return served

    def contains(self, keys: Sequence[bytes]) -> Mask:
        return np.array([self._path(key).exists() for key in keys], dtype=np.bool_)

    def delete(self, keys: Sequence[bytes]) -> int:
        return sum(self._unlink(self._path(key)) for key in keys)

    def touch(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            with suppress(OSError):
                os.utime(self._path(key), follow_symlinks=False)

    def purge(self, identity: bytes) -> int:
        """As every tier's. Other users of the folder must be told too: they may have blocks on their way."""
        self._purge_count += 1
        self._purges[identity] = self._purge_count
        found = 0
        folder = self.options.folder / _folder_name(identity)
        for _ in range(_PURGE_TRIES):
            # out of reach first: what is half written there cannot get its name any more
            away = folder.with_name(f".purged-{secrets.token_hex(8)}")
            with suppress(FileNotFoundError, PermissionError):
                folder.rename(away)
            found += sum(1 for _ in _files_below(away))
            _remove_purged(self.options.folder)
            if not folder.exists() and not any(self.options.folder.glob(".purged-*")):
                return found
        raise PurgeFailedError(f"{self.options.folder} keeps blocks of a purged identity")

    def clean(self) -> int:
        """Remove what was used longest ago until the store is within its capacity."""
        _remove_purged(self.options.folder)
        files = sorted(_files_below(self.options.folder))
        used = sum(size for _, size, _ in files)
        newest = files[-1][0] if files else 0.0
        freed = 0
        for used_at, size, path in files:
            abandoned = path.suffix == _PART and newest - used_at > _ABANDONED
            over = used - freed > self.options.capacity_bytes
            if (abandoned or over) and self._unlink(path):
                freed += size
                if path.suffix != _PART:
                    self._observer.evicted("store", "lru", 1, newest - used_at)
        return freed

    def stats(self) -> TierStats:
        return self._counters.snapshot(None, None, self.options.capacity_bytes, evicts=False)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _put(self, header: BlockHeader, payload: memoryview, began: int) -> bool:
        path = self._path(header.key)
        try:
            if path.exists():
                return True
            if not self._purged(header, began):
                self._write(path, header, payload)
            if self._purged(header, began):
                self._unlink(path)
                self._counters.drop(DropReason.PURGED)
                return False
        except OSError as error:
            self._counters.drop(reason_of(error))
            return False
        self._counters.add(stored=1, written_bytes=len(payload))
        return True

    def _write(self, path: Path, header: BlockHeader, payload: memoryview) -> None:
        body = self.options.codec.encode(header, payload)
        self._counters.note(self.options.codec.outcome(header, body))
        head = pack(header, body, mac_key=self.options.mac_key)
        for folder in (path.parent.parent, path.parent):  # `parents` would make the first one open to all
            folder.mkdir(mode=0o700, exist_ok=True)
        part = path.with_name(f"{path.name}.{secrets.token_hex(8)}{_PART}")
        try:
            handle = self._files.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                write_fully(self._files, handle, memoryview(head), 0)
                write_fully(self._files, handle, memoryview(body.data), len(head))
                self._files.sync(handle)
            finally:
                os.close(handle)
            part.rename(path)
        except OSError:
            self._unlink(part)
            raise

    def _get(self, call: "_Call", row: int, header: BlockHeader, out: memoryview) -> None:
        reason: DropReason | None = None
        path = self._path(header.key)
        try:
            record = self._read(path, len(out) + len(header.tokens) + _SLACK)
            found = unpack(record)
            body = record[found.header_bytes : found.header_bytes + found.body_bytes]
            verify(found, body, header, self.options.mac_key)
            with call.lock:
                if call.over:
                    return
                self.options.codec.decode(found, body, header, out)
                if self._purged(header, call.began):
                    reason, out[:] = DropReason.PURGED, bytes(len(out))
                else:
                    call.read_bytes += len(out)
            self.touch([header.key])
        except BadBlockError as error:
            reason = error.reason
            if reason is not DropReason.WRONG_SIZE:  # whoever asks for another size is wrong, not the file
                self._unlink(path)
        except OSError as error:
            reason = reason_of(error)
        with call.lock:
            call.results[row] = reason

    def _read(self, path: Path, limit: int) -> memoryview:
        # without O_NONBLOCK a pipe that somebody put there would hold this thread for ever
        handle = self._files.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
                raise BadBlockError(DropReason.FOREIGN)
            record = memoryview(bytearray(status.st_size))
            return record[: read_fully(self._files, handle, [record], 0)]
        finally:
            os.close(handle)

    def _purged(self, header: BlockHeader, began: int) -> bool:
        return self._purges.get(header.identity, 0) > began

    def _path(self, key: bytes) -> Path:
        name = key[KEY_IDENTITY_BYTES:].hex()
        return self.options.folder / _folder_name(key) / name[:2] / name

    def _unlink(self, path: Path) -> bool:
        try:
            there = path.is_symlink() or path.exists()
            self._files.unlink(path)
        except OSError:
            return False
        return there


class _Call:
    """What the reads of one `get` share. Nothing is copied out once it is over."""

    def __init__(self, began: int) -> None:
        self.began = began
        self.over = False
        self.lock = threading.Lock()
        self.results: dict[int, DropReason | None] = {}  # by row; None: served
        self.read_bytes = 0


def _folder_name(identity: bytes) -> str:
    return identity[:KEY_IDENTITY_BYTES].hex()


def _remove_purged(folder: Path) -> None:
    """Remove what purges have put out of reach."""
    for away in folder.glob(".purged-*"):
        shutil.rmtree(away, ignore_errors=True)


def _files_below(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Last use, size and path of every file; what goes away meanwhile is passed over."""
    for path in folder.rglob("*"):
        with suppress(OSError):
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode):
                yield status.st_mtime, status.st_size, path
