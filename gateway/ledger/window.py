"""Which rows are meant."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """Rows that arrived at `since` or later and before `until`, seconds since the epoch; None: without a bound."""

    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Where:
    """Only rows with these values; None: all."""

    tenant: str | None = None
    model: str | None = None
    engine: str | None = None
    route: str | None = None


EVER = Window()
ALL = Where()
