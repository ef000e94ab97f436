"""API keys: only their hashes are kept, and looking one up takes as long whether it is there or not."""

import hashlib
import hmac
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

PREFIX = "kvg_"
_HASH = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")


@dataclass(frozen=True, slots=True)
class KeyHash:
    """One key of one tenant. Keys are random and long, so that a plain hash of one cannot be guessed back."""

    tenant: str
    digest: bytes  # SHA-256 of the key, 32 bytes
    expires: float | None = None  # seconds since the epoch, UTC; None: never
    admin: bool = False  # whether answers to it say how they were routed


def new_key() -> str:
    """A fresh key: 256 random bits, in letters that every header carries."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(key: str) -> str:
    """As it stands in the configuration and in files of keys."""
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def digest_of(text: str) -> bytes:
    """The hash that `text` says; ValueError, which does not repeat it: somebody may have written the key itself."""
    found = _HASH.fullmatch(text)
    if found is None:
        raise ValueError("a key stands here as its SHA-256, 64 hex digits: kvgate keys hash makes it")
    return bytes.fromhex(found[1])


def expiry_of(text: str) -> float:
    """Seconds since the epoch of `2027-01-31`, `2027-01-31T12:00:00+01:00` (UTC where no zone is said); ValueError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("a key's end is a date: 2027-01-31, or 2027-01-31T12:00:00Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class KeySource(ABC):
    """Where keys are kept."""

    @abstractmethod
    def of(self, digest: bytes) -> KeyHash | None:
        """The key that has this hash; None: nobody's now."""


class KeyRing(KeySource):
    """A fixed set of keys.

    They are found by a hash of the hash that is this process's own, so that nobody can learn from the time a look
    takes how much of a hash was right. `clock` gives seconds since the epoch.
    """

    def __init__(self, keys: Iterable[KeyHash], clock: Callable[[], float] = time.time) -> None:
        self._own = secrets.token_bytes(32)
        self._clock = clock
        self._keys = {self._blind(each.digest): each for each in keys}

    def __len__(self) -> int:
        return len(self._keys)

    def of(self, digest: bytes) -> KeyHash | None:
        found = self._keys.get(self._blind(digest), _NOBODY)
        same = hmac.compare_digest(found.digest, digest)
        valid = found.expires is None or found.expires > self._clock()
        return found if same and valid and found is not _NOBODY else None

    def _blind(self, digest: bytes) -> bytes:
        return hashlib.blake2b(digest, key=self._own, digest_size=16).digest()


_NOBODY = KeyHash("", bytes(32))


def find(sources: Sequence[KeySource], key: bytes) -> KeyHash | None:
    """What is known of `key`; all sources are asked, whoever has it. None: it is nobody's."""
    digest = hashlib.sha256(key).digest()
    found: KeyHash | None = None
    for source in sources:
        known = source.of(digest)
        found = known if found is None else found
    return found
