"""API keys that a command is told the places of: variables of the environment, or files."""

from collections.abc import Mapping
from pathlib import Path

from gateway.reports.errors import DoctorError


def key_of(place: str, environ: Mapping[str, str]) -> str:
    """The key in `env:NAME`, `file:PATH`, or the variable NAME; raises DoctorError."""
    kind, _, rest = place.partition(":")
    if kind == "file" and rest:
        try:
            key = Path(rest).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise DoctorError(f"The key cannot be read from {rest}: {type(error).__name__}.") from None
        if not key:
            raise DoctorError(f"The file {rest} holds no key.")
        return key
    name = rest if kind == "env" and rest else place
    key = environ.get(name, "").strip()
    if not key:
        raise DoctorError(f"The environment variable {name} holds no key.")
    return key


def key_headers(kind: str | None, key: str | None) -> dict[str, str]:
    """How a kind of engine is shown a key."""
    if key is None:
        return {}
    return {"x-api-key": key} if kind == "anthropic" else {"authorization": f"Bearer {key}"}
