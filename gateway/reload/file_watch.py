"""Notices that files have changed, by asking for their state now and then: that works on every file system."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

_Signature: TypeAlias = tuple[tuple[int, ...] | None, ...]


class FileWatch:
    """Some files. Links are followed, so it sees Kubernetes swap what a mounted ConfigMap's links lead to.

    A change counts when nothing more has changed until the next look, so that a file is not read while it is written.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = tuple(dict.fromkeys(files))
        self._known = self._seen = self._signature()

    @property
    def files(self) -> tuple[Path, ...]:
        """What is looked at."""
        return self._files

    def look(self, files: Iterable[Path]) -> None:
        """Watch these from now on; what has not changed among them has still not."""
        known = dict(zip(self._files, self._known, strict=True))
        seen = dict(zip(self._files, self._seen, strict=True))
        self._files = tuple(dict.fromkeys(files))
        now = self._signature()
        self._known = tuple(known.get(file, state) for file, state in zip(self._files, now, strict=True))
        self._seen = tuple(seen.get(file, state) for file, state in zip(self._files, now, strict=True))

    def changed(self) -> bool:
        """Whether files have changed since the last time that this said so. May wait for a file system."""
        before, self._seen = self._seen, self._signature()
        if self._seen == self._known or self._seen != before:
            return False
        self._known = self._seen
        return True

    def _signature(self) -> _Signature:
        return tuple(_state(file) for file in self._files)


def _state(file: Path) -> tuple[int, ...] | None:
    """None: it is not there."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
