"""Folders that are built once and shared by every process: whole or not there at all.

A folder is built beside its place under another name, flushed to the disk with a manifest of what it holds,
and then renamed. One builder at a time works on one folder; the lock goes away with its process, however that
ends.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine_adapters.embedded.models.errors import ModelCacheError
from engine_adapters.embedded.models.progress import Progress, stage

MANIFEST = "kvgate-manifest.json"
_DIGEST_UP_TO = 16 << 20  # bytes; larger files are checked by size, or every start would read all the weights


def is_whole(folder: Path, source: str | None) -> bool:
    """True if `folder` holds just what its manifest lists. `source=None` accepts any source."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
        if source is not None and manifest["source"] != source:
            return False
        listed: dict[str, Any] = manifest["files"]
        return bool(listed) and all(_entry(folder / name) == entry for name, entry in listed.items())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def build_once(target: Path, source: str, build: Callable[[Path], None], progress: Progress) -> Path:
    """Return `target`, after `build(empty folder)` has filled it if missing, damaged or of another source.

    Args:
        target: the folder's final place.
        source: says what the content is made from; a folder made from something else is built anew.
        build: writes files into the folder it is given. It may be killed at any point.

    Raises:
        ModelCacheError: the folder cannot be written.
    """
    if is_whole(target, source):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive(target.parent / f".{target.name}.lock", target.name, progress):
            if not is_whole(target, source):
                if target.exists():
                    progress(f"{target.name}: the cached folder is damaged or outdated, building it anew")
                _build(target, source, build, progress)
    except OSError as error:
        raise ModelCacheError(
            f"cannot prepare {target.name} in {target.parent}: {error}. Free some space there or name "
            "another folder in KVGATE_CACHE_DIR."
        ) from error
    return target


def _build(target: Path, source: str, build: Callable[[Path], None], progress: Progress) -> None:
    _remove_leftovers(target)
    workplace = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        build(workplace)
        with stage(progress, f"{target.name}: flushing to the disk"):
            files = {path.name: _entry(path) for path in sorted(workplace.iterdir())}
            (workplace / MANIFEST).write_text(json.dumps({"source": source, "files": files}, indent=1))
            for path in workplace.iterdir():
                path.chmod(0o644)  # a shared cache may be filled by another user
                _flush(path)
            workplace.chmod(0o755)
            _flush(workplace)
        if target.exists():
            # Moved first, so that nobody meets it half removed; a process that has its files open keeps them.
            old = target.rename(Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent)) / "old")
            shutil.rmtree(old)
            old.parent.rmdir()
        workplace.rename(target)
        _flush(target.parent)
    finally:
        _remove_leftovers(target)


def _remove_leftovers(target: Path) -> None:
    """Remove what this builder, or one that was killed, left beside `target`. Only under the lock."""
    for path in target.parent.glob(f".{target.name}.*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _exclusive(lock: Path, name: str, progress: Progress) -> Iterator[None]:
    with lock.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with stage(progress, f"{name}: another process is preparing it, waiting"):
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _entry(path: Path) -> dict[str, Any]:
    """Size in bytes and, for a small file, SHA-256."""
    size = path.stat().st_size
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if size <= _DIGEST_UP_TO else None
    return {"size": size, "sha256": digest}


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
