"""Where the admin app listens, and who may ask it."""

import hashlib
import hmac
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AdminOptions:
    """The key itself is not kept."""

    host: str
    port: int
    digest: bytes = field(repr=False)  # SHA-256 of the key, 32 bytes

    def opens(self, key: bytes) -> bool:
        """Whether `key` is the one, in the same time whatever it is."""
        return hmac.compare_digest(hashlib.sha256(key).digest(), self.digest)
