"""Where captured bodies lie: files of lines, 0600 in a folder of 0700, the oldest ones going when it is full."""

import json
import os
import secrets
import time
from pathlib import Path

from gateway.ledger.errors import LedgerConfigError

_KEY = ".key"
_PREFIX = "bodies-"


class CaptureFiles:
    """Appends lines; several processes may share the folder, each with files of its own. One thread at a time.

    Args:
        folder: made with 0700 where it is not there.
        file_bytes: size at which the next file is begun.
        total_bytes: size of all files in the folder, those of other processes included.

    Raises:
        LedgerConfigError: the folder cannot be used.
    """

    def __init__(self, folder: Path, file_bytes: int, total_bytes: int) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._total_bytes = total_bytes
        self._descriptor: int | None = None
        self._path = folder
        self._size = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_mode & 0o077:
                raise LedgerConfigError(f"bodies are not kept where others can read: chmod 700 {folder}")
            self.key = _key(folder / _KEY)
        except OSError as error:
            raise LedgerConfigError(f"bodies cannot be kept in {folder}: {error.strerror}") from error

    def append(self, line: bytes) -> bool:
        """Write one line; False: it is larger than all that may be kept. After an OSError nothing of it is there."""
        if len(line) > min(self._file_bytes, self._total_bytes):
            return False
        if self._descriptor is None or self._size + len(line) > self._file_bytes:
            self._next()
        self._make_room(len(line))
        assert self._descriptor is not None
        written = 0
        try:
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += written
        return True

    def forget(self, tenant: str) -> int:
        """Take a tenant's lines out of all files that no other process still writes to; how many there were."""
        self.close()
        gone = 0
        for each in self._folder.glob(f"{_PREFIX}*.jsonl"):
            if _writer(each) == os.getpid() or not _runs(_writer(each)):
                gone += _without(each, tenant)
        return gone

    def close(self) -> None:
        """Flush what was written to the disk."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = None

    def _next(self) -> None:
        self.close()
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        self._path = self._folder / f"{_PREFIX}{stamp}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._descriptor, self._size = os.open(self._path, flags, 0o600), 0

    def _make_room(self, size: int) -> None:
        files = sorted((each.stat().st_mtime_ns, each) for each in self._folder.glob(f"{_PREFIX}*.jsonl"))
        total = sum(each.stat().st_size for _, each in files) + size
        for _, each in files:
            if total <= self._total_bytes:
                return
            if each != self._path:
                total -= each.stat().st_size
                each.unlink(missing_ok=True)
        if total > self._total_bytes:
            self._next()
            self._make_room(size)


def _writer(file: Path) -> int:
    """The process whose file it is."""
    return int(file.stem.split("-")[2])


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def _without(file: Path, tenant: str) -> int:
    """Write the file anew without a tenant's lines; how many those were. A crash leaves the old one or the new one."""
    beside = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    gone = kept = 0
    try:
        with (
            file.open("rb") as old,
            open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new,
        ):
            for line in old:
                if json.loads(line).get("tenant", "default") == tenant:
                    gone += 1
                else:
                    kept += 1
                    new.write(line)
            new.flush()
            os.fsync(new.fileno())
        if gone and kept:
            beside.replace(file)
        elif gone:
            file.unlink()
    finally:
        beside.unlink(missing_ok=True)
    return gone


def _key(path: Path) -> bytes:
    """Made at the first use, so that marks stay comparable from file to file."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        found = path.read_bytes()
        if len(found) != 32:
            raise LedgerConfigError(f"{path} is no key: remove it, and a new one is made") from None
        return found
    made = secrets.token_bytes(32)
    with os.fdopen(descriptor, "wb") as file:
        file.write(made)
    return made
