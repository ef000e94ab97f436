"""`ledger:` in the configuration file."""

from typing import Annotated

from pydantic import Field, field_validator

from gateway.config.base import ConfigModel
from gateway.ledger.errors import LedgerConfigError
from gateway.ledger.place import ledger_url
from gateway.ledger.retention import seconds
from gateway.ledger.writer import WriterSettings


class LedgerConfig(ConfigModel):
    """Where rows go, and for how long they stay."""

    url: str | None = (
        None  # off, a path, sqlite:///PATH or postgresql://USER@HOST/NAME; with a password: KVGATE_LEDGER
    )
    keep: str | None = None  # 30d, 12h, ...; None: for good

    # That wait while the database takes none; more are dropped, and requests go on. Some 900 bytes each.
    queue_rows: Annotated[int, Field(ge=1, le=1 << 24)] = WriterSettings().queue_rows

    @field_validator("url")
    @classmethod
    def _usable(cls, url: str | None) -> str | None:
        if url is None:
            return None
        try:
            parsed = ledger_url(url, {})
        except LedgerConfigError as error:
            raise ValueError(str(error)) from None
        if parsed is not None and parsed.password is not None:
            raise ValueError("no password stands in the file: set KVGATE_LEDGER in the environment instead")
        return url

    @field_validator("keep")
    @classmethod
    def _span(cls, keep: str | None) -> str | None:
        if keep is not None:
            try:
                seconds(keep)
            except LedgerConfigError as error:
                raise ValueError(str(error)) from None
        return keep
