"""What the audit says. None is `not known`."""

from dataclasses import asdict, dataclass, field
from typing import Any

from gateway.ledger.bill import Bill
from gateway.reports.audit.percentiles import Percentiles
from gateway.reports.findings import ReportFinding
from gateway.reports.reconcile.reconciliation import Reconciliation


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """The requests of one class."""

    requests: int
    prompt: int  # tokens, where said
    reused: int  # tokens
    recomputed: int
    completion: int
    ttft: Percentiles | None  # of streams
    tpot: Percentiles | None


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """All requests of one group, class by class; sums over those that reported consistently."""

    key: dict[str, str | None]  # the columns of `--by`; empty for the total
    requests: int
    classes: dict[str, ClassFigures]  # every class, also empty ones
    reused: int  # tokens
    recomputed: int
    reuse_rate: float | None  # None: nobody reported
    reused_per_s: float | None
    recomputed_per_s: float | None
    tiers: dict[str, int]  # reused tokens where the engine tells tiers apart
    untold_tier: int  # reused tokens of the others
    prefill_saved_s: float | None  # estimated
    estimated_tokens: int  # reused tokens that the estimate covers


@dataclass(frozen=True, slots=True)
class LostReuse:
    """Tokens that could have been reused and were computed, by cause."""

    kind: str  # "gap": it was expected to hit; "divergence": where the prompt left the nearest earlier one
    cause: str
    tokens: int
    requests: int


@dataclass(frozen=True, slots=True)
class TokenBin:
    """Tokens of requests that arrived within one span of time."""

    begin: float  # seconds since the epoch
    reused: int
    recomputed: int


@dataclass(frozen=True, slots=True)
class Money:
    """What the window cost, by a price table."""

    currency: str
    bills: dict[str, Bill]  # by tenant


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Everything from one window."""

    since: float | None  # seconds since the epoch; None: from the first request on
    until: float
    seconds: float  # that rates are taken over
    by: tuple[str, ...]
    total: GroupFigures
    groups: tuple[GroupFigures, ...]  # most requests first; none without `by`
    causes: tuple[LostReuse, ...]  # most tokens first
    findings: tuple[ReportFinding, ...]
    reconciled: tuple[Reconciliation, ...] = ()  # against engines' own counters, where there are any
    money: Money | None = None  # where a price table was given
    bins: tuple[TokenBin, ...] = field(default=())
    bin_s: float = 1.0

    def as_json(self) -> dict[str, Any]:
        """The whole of it."""
        return asdict(self)
