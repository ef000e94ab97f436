"""The store tier on a mounted folder that several machines share: one signed file a block.

Layout: `<folder>/<identity, hex>/<first two hex digits of the key>/<key, hex>`. Files appear by an atomic rename
and never change, so readers and writers of many processes need no lock. Whoever can write to the folder can put
anything into it: only a keyed MAC makes a file ours.
"""

import os
import secrets
import shutil
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cache_core.block_header import KEY_IDENTITY_BYTES
from cache_core.drop_reason import DropReason
from cache_core.metrics import CacheObserver
from cache_core.tiers.base import FULL, GoesOn, Mask, TierStats, Watermarks, for_ever
from cache_core.tiers.codec import Codec
from cache_core.tiers.errors import PurgeFailedError, TierError
from cache_core.tiers.files import Files, probe_folder, read_fully, reason_of, write_fully
from cache_core.tiers.store import Record, StoreTier, require_secret
from cache_core.tiers.store_mark import MARK, StoreMark

Found = tuple[float, int, Path]  # last use by the clock of the file system, bytes, path

_PART = ".part"
_PURGE_TRIES = 20  # writers elsewhere may still put a file into a folder that is being removed
_LISTED_AT_ONCE = 256  # files, before whoever cleans asks whether to go on
_ABANDONED = 3600.0  # seconds a part may be older than the newest file, by the clock of the file system


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Everything about a store on a folder that can be chosen."""

    folder: Path
    capacity_bytes: int  # of all its users together; held when one of them cleans
    mac_key: bytes  # shared by all users and by nobody else, at least 16 bytes
    parallel: int = 8  # files read or written at once
    codec: Codec = field(default_factory=Codec)
    mounted: bool = (
        False  # the folder is, or lies in, a mount: without one nothing is written, see `StoreMark`
    )
    scope_share: float = 1.0  # of the capacity: what one scope may hold before it makes room for others

    def __post_init__(self) -> None:
        require_secret(self.mac_key)
        if self.capacity_bytes < 1 or self.parallel < 1:
            raise ValueError("capacity and parallel are at least one")
        if not 0 <= self.scope_share <= 1:
            raise ValueError(f"a share is between 0 and 1, not {self.scope_share}")


class StoreFolder(StoreTier):
    """Blocks in a folder shared with other processes, on this machine or on others."""

    def __init__(
        self,
        options: StoreOptions,
        files: Files | None = None,
        observer: CacheObserver | None = None,
        clock: Callable[[], float] = time.monotonic,  # seconds
    ) -> None:
        """Open or make the folder.

        Raises:
            TierError: it cannot be made or entered.
        """
        super().__init__(options.codec, options.mac_key, options.parallel, observer, clock)
        self.options = options
        self._files = files or Files()
        self._mark = StoreMark(options.folder, self._files, options.mounted, clock)
        self._banned: set[bytes] = set()  # identities that were purged while they could not be erased
        try:
            self._mark.make()
        except OSError as error:
            raise TierError(f"{options.folder} cannot be used as a store: {error}") from error

    def contains(self, keys: Sequence[bytes]) -> Mask:
        there = [not self._is_banned(key) and self._path(key).exists() for key in keys]
        return np.array(there, dtype=np.bool_)

    def probe(self) -> None:
        if not self._mark.is_there():
            raise TierError(f"{self.options.folder} is away, is it not mounted?")
        probe_folder(self._files, self.options.folder, f".probe-{secrets.token_hex(8)}{_PART}")

    def touch(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            with suppress(OSError):
                os.utime(self._path(key), follow_symlinks=False)

    def purge(self, identity: bytes) -> int:
        """As every tier's. Other users of the folder must be told too: they may have blocks on their way.

        Raises:
            PurgeFailedError: some could not be erased, or the folder is away. Nothing of it is served here until a
                `clean` has removed it.
        """
        self._purge_begins(identity)
        found, self._banned = 0, self._banned | {identity}
        if not self._mark.is_there():
            raise PurgeFailedError(
                f"{self.options.folder} is away, is it not mounted? Purge again when it is back"
            )
        folder = self.options.folder / _folder_name(identity)
        for _ in range(_PURGE_TRIES):
            # out of reach first: what is half written there cannot get its name any more
            away = folder.with_name(f".purged-{secrets.token_hex(8)}")
            with suppress(FileNotFoundError, PermissionError):
                folder.rename(away)
            found += sum(1 for _ in _files_below(away))
            _remove_purged(self.options.folder)
            if not folder.exists() and not any(self.options.folder.glob(".purged-*")):
                self._banned = self._banned - {identity}
                return found
        raise PurgeFailedError(f"{self.options.folder} keeps blocks of a purged identity")

    def clean(self, goes_on: GoesOn = for_ever, marks: Watermarks = FULL) -> int:
        """As every tier's: what was used longest ago goes, of scopes over their share first, and abandoned parts.

        Looks at every file of the store.
        """
        options = self.options
        if not self._mark.is_there():  # whatever lies there instead is not ours to remove
            return 0
        for identity in self._banned:
            with suppress(PurgeFailedError):  # again the next time
                self.purge(identity)
        _remove_purged(options.folder)
        files: list[Found] = []
        for file in _files_below(options.folder):
            files.append(file)
            if len(files) % _LISTED_AT_ONCE == 0 and not goes_on():
                return 0
        files.sort()
        used = sum(size for _, size, _ in files)
        newest = files[-1][0] if files else 0.0
        limit = options.capacity_bytes * (marks.stop if used > marks.start * options.capacity_bytes else 1)
        freed = 0
        for used_at, size, path in self._in_turn(files):
            if not goes_on():
                break
            abandoned = path.suffix == _PART and newest - used_at > _ABANDONED
            over = used - freed > limit
            if (abandoned or over) and self._unlink(path):
                freed += size
                if path.suffix != _PART:
                    self._observer.evicted("store", "lru", 1, newest - used_at)
        return freed

    def _in_turn(self, files: Sequence[Found]) -> list[Found]:
        """These files, the oldest first, but before all others what scopes have beyond their share of the capacity."""
        share = int(self.options.scope_share * self.options.capacity_bytes)
        excess = Counter[str]()
        for _, size, path in files:
            excess[self._scope_of(path)] += size
        if len(excess) < 2:
            return list(files)
        excess.subtract(dict.fromkeys(excess, share))
        first: list[Found] = []
        rest: list[Found] = []
        for file in files:
            _, size, path = file
            over = excess[self._scope_of(path)] > 0
            excess[self._scope_of(path)] -= size if over else 0
            (first if over else rest).append(file)
        return first + rest

    def _scope_of(self, path: Path) -> str:
        return path.relative_to(self.options.folder).parts[0]

    def stats(self) -> TierStats:
        return self._counters.snapshot(None, None, self.options.capacity_bytes, evicts=False)

    def _together(self, block_bytes: int) -> int:
        return 1

    def _write(self, keys: Sequence[bytes], records: Sequence[Record]) -> list[DropReason | None]:
        return [self._write_file(self._path(key), record) for key, record in zip(keys, records, strict=True)]

    def _write_file(self, path: Path, record: Record) -> DropReason | None:
        head, body = record
        part = path.with_name(f"{path.name}.{secrets.token_hex(8)}{_PART}")
        if not self._mark.is_there():  # else it would go to the disk that a mount hides
            return DropReason.MISSING
        if self._is_banned(bytes.fromhex(path.parent.parent.name)):
            return DropReason.PURGED
        try:
            for folder in (path.parent.parent, path.parent):  # `parents` would make the first one open to all
                folder.mkdir(mode=0o700, exist_ok=True)
            handle = self._files.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                write_fully(self._files, handle, memoryview(head), 0)
                write_fully(self._files, handle, memoryview(body.data), len(head))
                self._files.sync(handle)
            finally:
                os.close(handle)
            part.rename(path)
        except OSError as error:
            self._unlink(part)
            return reason_of(error)
        return None

    def _read(self, keys: Sequence[bytes], limit: int) -> list[memoryview | DropReason]:
        return [self._read_file(self._path(key), limit) for key in keys]

    def _read_file(self, path: Path, limit: int) -> memoryview | DropReason:
        if self._is_banned(bytes.fromhex(path.parent.parent.name)):
            return DropReason.MISSING
        try:
            # without O_NONBLOCK a pipe that somebody put there would hold this thread for ever
            handle = self._files.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                status = os.fstat(handle)
                if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
                    self._unlink(path)
                    return DropReason.FOREIGN
                record = memoryview(bytearray(status.st_size))
                return record[: read_fully(self._files, handle, [record], 0)]
            finally:
                os.close(handle)
        except OSError as error:
            return reason_of(error)

    def _discard(self, keys: Sequence[bytes]) -> int:
        return sum(self._unlink(self._path(key)) for key in keys)

    def _path(self, key: bytes) -> Path:
        name = key[KEY_IDENTITY_BYTES:].hex()
        return self.options.folder / _folder_name(key) / name[:2] / name

    def _is_banned(self, key: bytes) -> bool:
        """By a key, or what it begins with."""
        return any(identity.startswith(key[:KEY_IDENTITY_BYTES]) for identity in self._banned)

    def _unlink(self, path: Path) -> bool:
        try:
            there = path.is_symlink() or path.exists()
            self._files.unlink(path)
        except OSError:
            return False
        return there


def _folder_name(identity: bytes) -> str:
    return identity[:KEY_IDENTITY_BYTES].hex()


def _remove_purged(folder: Path) -> None:
    """Remove what purges have put out of reach."""
    for away in folder.glob(".purged-*"):
        shutil.rmtree(away, ignore_errors=True)


def _files_below(folder: Path) -> Iterator[Found]:
    """Last use, size and path of every file; what goes away meanwhile is passed over."""
    for path in folder.rglob("*"):
        with suppress(OSError):
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) and path.name != MARK:
                yield status.st_mtime, status.st_size, path
