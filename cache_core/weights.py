"""Which weights are loaded: a digest of the files, remembered by their stat, and an epoch for changes in place."""

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock

_SUFFIXES = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
_READ = 8 << 20  # bytes at once
# A file may change once more within one tick of its time stamp: what is that young is not remembered.
_SETTLED = 2_000_000_000  # ns

Stat = tuple[int, int, int, int]  # size, mtime ns, ctime ns, inode


class UpdateEpoch:
    """Which state of the loaded weights a block belongs to. Any thread may read and change it.

    It starts as the weights' digest. Whoever changes weights in place names the new state, or gets one that
    never was before, so that nothing computed with the old weights is served again.
    """

    def __init__(self, weights_digest: bytes) -> None:
        self._value = b"weights:" + weights_digest
        self._lock = Lock()

    @property
    def value(self) -> bytes:
        """For CacheIdentity.update_epoch."""
        return self._value

    def changed(self, epoch: bytes | None = None) -> bytes:
        """The weights have changed in place; `epoch` names them if their origin can (a digest, a step's id)."""
        with self._lock:
            self._value = b"given:" + epoch if epoch is not None else b"random:" + secrets.token_bytes(16)
            return self._value


def weights_digest(path: Path, memo: Path | None = None, now: Callable[[], int] = time.time_ns) -> bytes:
    """SHA-256 over names and contents of the weight files in a folder, or of one file.

    `memo` is a small JSON file that remembers each file's digest as long as its path, size, times and inode
    stay; without it, or where it cannot be read or written, everything is hashed anew. Files that are gone are
    forgotten.

    Raises:
        FileNotFoundError: there is no weight file.
        OSError: a file cannot be read.
    """
    files = _weight_files(path)
    if not files:
        raise FileNotFoundError(f"no weight files in {path}")
    known = _load(memo)
    remembered: dict[str, tuple[Stat, str]] = {}
    whole = hashlib.sha256()
    for file in files:
        name = str(file.resolve())
        stat, digest = _file_digest(file, known.get(name))
        if now() - max(stat[1], stat[2]) > _SETTLED:
            remembered[name] = (stat, digest)
        relative = file.relative_to(path).as_posix() if path.is_dir() else ""
        whole.update(f"{len(relative)}:{relative}{digest}".encode())
    if memo is not None and remembered != {name: known.get(name) for name in remembered}:
        _save(memo, {name: entry for name, entry in known.items() if Path(name).is_file()} | remembered)
    return whole.digest()


def weights_stat(path: Path) -> dict[str, Stat]:
    """Size, times and inode of each weight file, without reading it: another one once any of them was replaced.

    Raises:
        OSError: a file is gone.
    """
    stats = {file.as_posix(): file.stat() for file in _weight_files(path)}
    return {
        name: (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino) for name, stat in stats.items()
    }


def _weight_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())


def _file_digest(file: Path, known: tuple[Stat, str] | None) -> tuple[Stat, str]:
    with file.open("rb", buffering=0) as opened:
        before = _stat(opened.fileno())
        if known is not None and known[0] == before:
            return known
        digest = hashlib.sha256()
        buffer = bytearray(_READ)
        while count := opened.readinto(buffer):
            digest.update(memoryview(buffer)[:count])
        if _stat(opened.fileno()) != before:
            raise OSError(f"{file} changes while it is read")
        return before, digest.hexdigest()


def _stat(handle: int) -> Stat:
    stat = os.fstat(handle)
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def _load(memo: Path | None) -> dict[str, tuple[Stat, str]]:
    if memo is None:
        return {}
    try:
        entries = json.loads(memo.read_bytes())
        return {str(name): (_stat_of(stat), str(digest)) for name, (stat, digest) in entries.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}  # lost or damaged: all it costs is hashing


def _stat_of(numbers: list[int]) -> Stat:
    size, modified, changed, inode = numbers
    return size, modified, changed, inode


def _save(memo: Path, entries: dict[str, tuple[Stat, str]]) -> None:
    part = memo.with_name(f"{memo.name}.{os.getpid()}.part")
    try:
        memo.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as out:
            json.dump(entries, out)
        part.replace(memo)
    except OSError:
        return  # a folder that cannot be written: the next start hashes again
