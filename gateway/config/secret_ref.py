"""Keys of engines: where they are, never what they are."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from gateway.config.base import ConfigModel
from gateway.config.errors import ConfigError
from gateway.plain_file import read_plain
from gateway.secrets import SecretError, strong

_LARGEST = 64 << 10  # bytes


class SecretRef(ConfigModel):
    """`{env: NAME}` or `{file: PATH}`."""

    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    file: Path | None = None

    @model_validator(mode="before")
    @classmethod
    def _never_inline(cls, given: object) -> object:
        if isinstance(given, str):
            raise ValueError("a key does not stand in the file: write {env: NAME} or {file: PATH}")  # noqa: TRY004
        return given

    @model_validator(mode="after")
    def _one_place(self) -> "SecretRef":
        if (self.env is None) == (self.file is None):
            raise ValueError("write either env or file")
        return self

    def read(self, path: str, environ: Mapping[str, str]) -> str:
        """The secret, white space at its ends aside; raises ConfigError, which names `path`."""
        if self.file is None:
            found = environ.get(self.env or "", "").strip()
            place = f"the environment has no {self.env}"
        else:
            try:
                found = read_plain(self.file, _LARGEST).decode().strip()
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is no text"
                raise ConfigError(f"{path}.file: {self.file} cannot be read: {why}") from error
            place = f"{self.file} is empty"
        if not found:
            raise ConfigError(f"{path}: {place}")
        if not found.isascii() or not found.isprintable():
            raise ConfigError(f"{path}: what is there has characters that no header can carry")
        return found

    def strong(self, path: str, environ: Mapping[str, str]) -> bytes:
        """The same of a secret that others may try to guess: ConfigError, too, where it is short."""
        try:
            return strong(self.read(path, environ).encode(), f"{path}: it")
        except SecretError as error:
            raise ConfigError(str(error)) from None


def secrets_in(part: object, path: str = "") -> Iterator[tuple[str, SecretRef]]:
    """Every secret that is named below `part`, with its key's path."""
    if isinstance(part, SecretRef):
        yield path, part
    elif isinstance(part, BaseModel):
        for name in type(part).model_fields:
            yield from secrets_in(getattr(part, name), f"{path}.{name}" if path else name)
    elif isinstance(part, (list, tuple)):
        for place, each in enumerate(part):
            yield from secrets_in(each, f"{path}[{place}]")
    elif isinstance(part, dict):
        for key, each in part.items():
            yield from secrets_in(each, f"{path}.{key}")
