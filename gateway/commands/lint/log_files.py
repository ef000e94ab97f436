"""Request logs line by line: plain, gzipped, or from standard input."""

import gzip
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from canon.lint.records import LoggedRequest, requests_in

_MAX_LINE = 256 << 20  # bytes; a line past it is skipped, not held in memory
_CHUNK = 1 << 20

Progress = Callable[[int, int], None]  # (bytes read of all logs, requests)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request stands."""

    log: str
    line: int  # from 1


@dataclass(slots=True)
class Logs:
    """All requests of some logs in order, with what could not be used counted by reason."""

    paths: list[Path]
    progress: Progress = lambda read, requests: None
    places: list[Place] = field(default_factory=list)  # of each request
    skipped: dict[str, int] = field(default_factory=dict)
    lines: int = 0
    read: int = 0

    @property
    def size(self) -> int | None:
        """Bytes of all logs as they lie on disk; None: not known, as for standard input or gzip."""
        if any(str(path) == "-" or path.suffix == ".gz" for path in self.paths):
            return None
        return sum(path.stat().st_size for path in self.paths)

    def requests(self) -> Iterator[LoggedRequest]:
        """Reads one line at a time. Raises OSError for a log that cannot be read."""
        for path in self.paths:
            with _opened(path) as log:
                for number, line in enumerate(_lines(log), 1):
                    self.lines += 1
                    self.read += len(line or b"")
                    for request in self._parse(line):
                        self.places.append(Place(str(path), number))
                        yield request
                    self.progress(self.read, len(self.places))

    def _parse(self, line: bytes | None) -> Iterator[LoggedRequest]:
        if line is None:
            self._skip(f"longer than {_MAX_LINE >> 20} MiB")
            return
        if not line.strip():
            return
        try:
            record: Any = json.loads(line)
        except (ValueError, RecursionError):
            self._skip("not JSON")
            return
        found = False
        for request in requests_in(record):
            found = True
            yield request
        if not found:
            self._skip("no request in it")

    def _skip(self, reason: str) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + 1


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    if str(path) == "-":
        return nullcontext(sys.stdin.buffer)
    if path.suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb")


def _lines(log: BinaryIO) -> Iterator[bytes | None]:
    """Lines without their end; None for one that is too long."""
    while line := log.readline(_MAX_LINE):
        if len(line) < _MAX_LINE or line.endswith(b"\n"):
            yield line
            continue
        while (rest := log.readline(_CHUNK)) and not rest.endswith(b"\n"):
            pass
        yield None
