"""A file of keys, read again when it changes: new keys count, and old ones are gone, without a restart."""

import logging
import time
from collections.abc import Callable, Collection
from pathlib import Path

from gateway.plain_file import read_plain
from gateway.tenants.keys import KeyHash, KeyRing, KeySource, digest_of, expiry_of

log = logging.getLogger("kvgate.gateway")

LARGEST = 4 << 20  # bytes; some 40,000 keys
ADMIN = "admin"  # the last word of a line whose key is one
_LOOK_S = 1.0


class KeysFileError(Exception):
    """The file cannot be used; the message names it and the line, and repeats no key."""


def read_keys(file: Path, tenants: Collection[str]) -> list[KeyHash]:
    """Keys of the lines `TENANT SHA256 [EXPIRES] [admin]`; empty lines and those behind # are left out.

    Raises:
        KeysFileError: it cannot be read, a line has another form, or names none of `tenants`.
    """
    try:
        data = read_plain(file, LARGEST)
        text = data.decode()
    except OSError as error:
        raise KeysFileError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise KeysFileError(f"{file} is no text") from None
    if len(data) > LARGEST:
        raise KeysFileError(f"{file} is larger than {LARGEST} bytes")
    keys: list[KeyHash] = []
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.partition("#")[0].split()
        if parts:
            try:
                keys.append(_key(parts, tenants))
            except ValueError as error:
                raise KeysFileError(f"{file}, line {number}: {error}") from None
    return keys


def _key(parts: list[str], tenants: Collection[str]) -> KeyHash:
    admin = len(parts) > 2 and parts[-1] == ADMIN
    said = parts[:-1] if admin else parts
    if len(said) not in (2, 3):
        raise ValueError(
            "write TENANT SHA256, a date behind it where the key ends, and admin where it is one"
        )
    if said[0] not in tenants:
        raise ValueError("the configuration has no tenant of this name")
    return KeyHash(said[0], digest_of(said[1]), expiry_of(said[2]) if len(said) == 3 else None, admin)


class KeysFile(KeySource):
    """Looks whether the file has changed once a second while requests come. One that cannot be used changes nothing.

    Raises:
        KeysFileError: it cannot be used at the start.
    """

    def __init__(
        self, file: Path, tenants: Collection[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = file
        self._tenants = frozenset(tenants)
        self._clock = clock
        self._seen = self._stamp()
        self._ring = KeyRing(read_keys(file, self._tenants))
        self._next = clock() + _LOOK_S
        self._told: str | None = None

    def of(self, digest: bytes) -> KeyHash | None:
        if self._clock() >= self._next:
            self._look()
        return self._ring.of(digest)

    def _look(self) -> None:
        self._next = self._clock() + _LOOK_S
        stamp = self._stamp()
        if stamp == self._seen:
            return
        try:
            ring = KeyRing(read_keys(self._file, self._tenants))
        except KeysFileError as error:
            if str(error) != self._told:
                self._told = str(error)
                log.warning("the keys stay as they were", extra={"fields": {"reason": str(error)}})
            return
        self._ring, self._seen, self._told = ring, stamp, None
        log.info("keys were read again", extra={"fields": {"file": str(self._file), "keys": len(ring)}})

    def _stamp(self) -> tuple[int, ...]:
        """Changes with the file, also where another one takes its place; links are followed."""
        try:
            found = self._file.stat()
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
