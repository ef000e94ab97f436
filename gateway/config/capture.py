"""`capture:` in the configuration file."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from gateway.config.base import ConfigModel
from gateway.ledger.capture import CaptureSettings, capture_settings
from gateway.ledger.errors import LedgerConfigError


class CaptureConfig(ConfigModel):
    """Whose bodies are kept for `kvgate lint`, and what is taken out of them."""

    folder: Path
    share: Annotated[float, Field(ge=0, le=1)] = 0.01  # of requests
    redact: tuple[str, ...] = ()  # paths, such as messages[*].content
    redact_patterns: tuple[str, ...] = ()  # regular expressions
    structure_only: bool = False
    responses: bool = True
    max_gib: Annotated[float, Field(gt=0, le=1 << 20)] = 1

    @model_validator(mode="after")
    def _readable(self) -> "CaptureConfig":
        try:
            self.settings()
        except LedgerConfigError as error:
            raise ValueError(str(error)) from None
        return self

    def settings(self) -> CaptureSettings:
        """As `BodyCapture` takes them."""
        return capture_settings(
            self.folder,
            self.share,
            self.redact,
            self.redact_patterns,
            self.structure_only,
            responses=self.responses,
            max_gib=self.max_gib,
        )
