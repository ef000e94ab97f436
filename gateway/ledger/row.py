"""A ledger row. None is `not known` everywhere, and never stands for 0."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import msgspec

from engine_adapters.base import ReuseStatus, Tier

GapCause = Literal["evicted", "other replica", "template mismatch", "salt", "partial block", "unknown"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a prompt left the nearest earlier one. Hashes and places, never text."""

    path: str
    offset: int  # characters
    cause: str  # the name of its kind, as in canon's findings
    prefix_hash: str  # of what is shared up to there, hex


class LedgerRow(msgspec.Struct, frozen=True):
    """One request that reached an engine, or was refused. Times are seconds since the epoch, UTC."""

    id: str
    tenant: str
    model: str
    route: str
    engine: str | None = None  # its name; None: it never reached one
    replica: str | None = None
    arrival: float = 0.0
    first_token: float | None = None
    end: float | None = None
    stream: bool = False
    status: int = 0  # HTTP
    prompt: int | None = None  # tokens, as are the next ones
    reused: int | None = None
    by_tier: Mapping[Tier, int] = MappingProxyType({})  # empty: not said
    matched: int | None = None  # what the engine's index found, where it says so
    completion: int | None = None
    reasoning: int | None = None  # of the completion
    reuse_status: ReuseStatus = "not_reported"
    reuse_source: str = ""
    predicted: int | None = None  # what the shadow index expected to be reused
    block_size: int | None = None
    gap_cause: GapCause | None = None  # why reused is under predicted
    canon_policy: str = "off"
    canon_rules: int | None = None  # the version of canon's rules
    canon_edits: int = 0
    canon_saved: int | None = None  # tokens that edits made reusable, estimated
    divergence: Divergence | None = None
    retries: int = 0  # that the client's SDK made before this one
    attempts: int | None = None  # times that the gateway sent it to an engine; 0: it never did
    route_reason: str | None = None  # why this replica; None: none was chosen
    route_scores: str | None = None  # JSON: what was expected of each that could have been
    finish: str | None = None
    error: str | None = None  # its kind
    trace_id: str | None = None

    @property
    def recomputed(self) -> int | None:
        """Prompt tokens that were prefilled; unknown where reused is, or cannot be right."""
        if self.prompt is None or self.reused is None or self.reuse_status == "inconsistent":
            return None
        return self.prompt - self.reused
