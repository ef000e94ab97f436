"""API keys that a command is told the places of: variables of the environment, or files."""

import re
from collections.abc import Mapping
from pathlib import Path

from gateway.reports.errors import DoctorError

_PLACES = "Say where the key is: env:NAME, which is a variable of the environment, or file:PATH."
_NAME = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")  # as variables are called, and keys are not


def key_of(place: str, environ: Mapping[str, str], option: str) -> str:
    """The key in `env:NAME`, `file:PATH`, or the variable NAME, for the option that says so.

    Raises DoctorError, which repeats nothing that may be a key, written where its place belongs.
    """
    kind, _, rest = place.partition(":")
    if kind == "file" and rest:
        return _in_file(rest, option)
    return _in_variable(rest if kind == "env" and rest else place, environ, option)


def _in_file(path: str, option: str) -> str:
    try:
        key = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        raise DoctorError(f"{option}: the key cannot be read from {path}: {why}.") from None
    except UnicodeDecodeError:
        raise DoctorError(f"{option}: the key cannot be read from {path}: it is no text.") from None
    if not key:
        raise DoctorError(f"{option}: the file {path} holds no key.")
    return key


def _in_variable(name: str, environ: Mapping[str, str], option: str) -> str:
    key = environ.get(name, "").strip()
    if not key:
        shown = name if _NAME.fullmatch(name) else "of that name"
        raise DoctorError(f"{option}: there is no key in the environment variable {shown}. {_PLACES}")
    return key


def key_headers(kind: str | None, key: str | None) -> dict[str, str]:
    """How a kind of engine is shown a key."""
    if key is None:
        return {}
    return {"x-api-key": key} if kind == "anthropic" else {"authorization": f"Bearer {key}"}
