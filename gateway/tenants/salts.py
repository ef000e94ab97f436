"""What keeps groups of tenants apart in caches: values that only who has the secret can make."""

import hashlib
import hmac


def salt_of(secret: bytes, group: str) -> str:
    """The salt of a group: HMAC-SHA256 over its name, 64 hex digits."""
    return hmac.new(secret, b"kvgate salt of a group\0" + group.encode(), hashlib.sha256).hexdigest()


def mark_of(secret: bytes, group: str) -> str:
    """What scopes of the group have in them; nobody finds the salt from it."""
    made = hmac.new(secret, b"kvgate mark of a group\0" + group.encode(), hashlib.sha256).hexdigest()
    return f"@{made[:16]}"
