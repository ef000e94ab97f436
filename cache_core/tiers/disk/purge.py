"""Erasing an identity for good: what a crash interrupts, the next start goes on with."""

import os
from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from cache_core.identity import DIGEST_BYTES
from cache_core.tiers.disk.catalog import Catalog
from cache_core.tiers.disk.index import IndexDamagedError
from cache_core.tiers.disk.segment import Segment, record_size
from cache_core.tiers.errors import PurgeFailedError
from cache_core.tiers.files import sync_folder


class PurgeJournal:
    """The identities whose bytes are being erased, in a small file; there is none where nothing is. From any thread."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "purging"
        self._lock = Lock()

    def pending(self) -> list[bytes]:
        """What has to be erased still."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []
        return [data[at : at + DIGEST_BYTES] for at in range(0, len(data), DIGEST_BYTES)]

    def add(self, identity: bytes) -> None:
        """From now on a start erases it first."""
        with self._lock:
            pending = self.pending()
            if identity not in pending:
                self._write([*pending, identity])

    def remove(self, identity: bytes) -> None:
        """It is erased."""
        with self._lock:
            self._write([other for other in self.pending() if other != identity])

    def _write(self, identities: list[bytes]) -> None:
        if identities:
            part = self._path.with_suffix(".part")
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as out:
                out.write(b"".join(identities))
                out.flush()
                os.fsync(handle)
            part.replace(self._path)
        else:
            self._path.unlink(missing_ok=True)
        sync_folder(self._path.parent)


def erase(catalog: Catalog, holders: Iterable[int] | None, identity: bytes) -> None:
    """Overwrite every byte stored for an identity in these segments (None: any may have some).

    A segment with nothing else in it, or that does not let itself be written, is dropped.

    Raises:
        PurgeFailedError: nor can it be dropped.
    """
    failed = []
    for number in sorted(catalog.segments if holders is None else holders):
        segment = catalog.segments.get(number)
        if segment is None or (segment.owner == identity and _dropped(catalog, segment)):
            continue
        if not (_erased(segment, identity) or _dropped(catalog, segment)):
            failed.append(segment.path.name)
    if failed:
        raise PurgeFailedError(f"{len(failed)} segments keep bytes of a purged identity: {failed[:3]}")


def _erased(segment: Segment, identity: bytes) -> bool:
    """False where that failed, or where a damaged record does not say whose it is."""
    try:
        records = list(segment.records())
        ours = [
            (offset, record_size(found))
            for offset, found in records
            if found is not None and found.header.identity == identity
        ]
        segment.erase(ours)
    except OSError:
        return False
    return all(found is not None for _, found in records)


def _dropped(catalog: Catalog, segment: Segment) -> bool:
    try:
        catalog.drop(segment)
    except (OSError, IndexDamagedError):
        return not segment.path.exists()
    return True
