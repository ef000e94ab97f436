"""Secrets come from a file or the environment, never from the command line, which every user of a machine can read."""

from collections.abc import Mapping
from pathlib import Path

_SHORTEST = 16  # bytes


class SecretError(Exception):
    """A secret is missing, unreadable or too short; the message says which and what to do."""


def strong(found: bytes, what: str) -> bytes:
    """`found`, which cannot be guessed; raises SecretError, which begins with `what` it is."""
    if len(found) < _SHORTEST:
        raise SecretError(f"{what} is shorter than {_SHORTEST} bytes; make one: openssl rand -hex 32")
    return found


def secret(name: str, file: Path | None, environ: Mapping[str, str]) -> bytes | None:
    """What `file` says, or the environment's variable `name`; white space at the ends aside. None: neither is there.

    Raises:
        SecretError: it cannot be used.
    """
    try:
        stated = environ.get(name, "").encode() if file is None else file.read_bytes()
    except OSError as error:
        raise SecretError(f"the secret in {file} cannot be read: {error.strerror}") from error
    found = stated.strip()
    source = name if file is None else str(file)
    if not found and file is None:
        return None
    return strong(found, f"the secret in {source}")
