"""Values of the shared memory at rest: encrypted, so that the server's files and its operators show no prompt."""

import hashlib

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

_KEY_BYTES = 64  # AES-256 twice: one key for the tag, one for the text


class Seal:
    """AES-SIV (RFC 5297), bound to the key that a value stands under.

    One value under one key is always the same bytes, since stores compare what is there with what was expected. So who
    reads the server sees that a record has not changed, and its length; nothing else.
    """

    def __init__(self, secret: bytes) -> None:
        self._cipher = AESSIV(
            hashlib.blake2b(secret, digest_size=_KEY_BYTES, person=b"kvgate memory").digest()
        )

    def close(self, key: bytes, value: bytes) -> bytes:
        """What is stored."""
        return self._cipher.encrypt(value, [key])

    def open(self, key: bytes, stored: bytes) -> bytes | None:
        """The value; None: it was not closed with this secret under this key."""
        try:
            return self._cipher.decrypt(stored, [key])
        except (InvalidTag, ValueError):
            return None
