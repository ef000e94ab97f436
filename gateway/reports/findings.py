"""What cannot be right, as reports say it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ReportFinding:
    """One thing that is wrong at one engine."""

    rule: str  # short and stable, for machines
    severity: Literal["wrong", "doubtful"]  # figures cannot be true; or may not be
    engine: str | None
    detail: str
    cause: str  # what it most likely comes from
    fix: str = ""
