"""What one request did, collected while it runs, for its access line. Never any prompt or answer text."""

import logging
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import msgspec
from starlette.types import Scope

from engine_adapters.base import ReuseReport
from gateway.ledger.expectation import NOTHING_EXPECTED, Expected
from gateway.replicas.deadline import NO_DEADLINE, Deadline
from gateway.routing.router import Decision
from gateway.tenants.tenant import DEFAULT, Tenant
from gateway.transport.stages import Stages
from gateway.transport.trace_context import NO_TRACE, TraceContext

log = logging.getLogger("kvgate.gateway")

_KEY = "kvgate.record"


@dataclass(frozen=True, slots=True)
class CanonTold:
    """What canon did to one request, or would have done: counts, and never any text."""

    policy: str
    rules_version: int | None = None  # None: no rules were run
    applied: bool = True  # False: the edits were only counted
    edits: Mapping[str, int] = field(default_factory=dict)  # by rule
    findings: Mapping[str, int] = field(default_factory=dict)  # by cause
    bypassed: bool = False  # True: the body could not be written again without a loss, and went on as it came
    control_tokens: int = 0  # special tokens that were written in messages or tools
    gain_tokens: int | None = None  # prompt tokens that the edits would have let be reused, estimated

    def with_control_tokens(self, by_path: Mapping[str, int]) -> "CanonTold":
        """The same, told of special tokens that were written in the request."""
        return replace(self, control_tokens=sum(by_path.values()))

    def header(self) -> bytes:
        """`full; edits=3; newlines=2; tool_order=1`; `would-edit` where nothing was changed, or `bypassed`."""
        told = f"{self.policy}; "
        if self.bypassed:
            told += "bypassed"
        elif not self.edits:
            told += "edits=0" if self.applied else "would-edit=0"
        else:
            total = f"{'edits' if self.applied else 'would-edit'}={sum(self.edits.values())}"
            told += "; ".join([total, *_counts(self.edits)])
        if self.control_tokens:
            told += f"; control_tokens={self.control_tokens}"
        return told.encode()

    def fields(self) -> dict[str, object]:
        """What the access line says, but for what is nothing."""
        facts: dict[str, object] = {"canon": self.policy}
        if self.bypassed:
            facts["canon_bypassed"] = True
        if self.edits:
            facts["canon_edits" if self.applied else "canon_would_edit"] = ",".join(_counts(self.edits))
        if findings := sum(self.findings.values()):
            facts["canon_findings"] = findings
        if self.control_tokens:
            facts["control_tokens"] = self.control_tokens
        if self.gain_tokens:
            facts["canon_gain_tokens"] = self.gain_tokens
        return facts


def _counts(counts: Mapping[str, int]) -> list[str]:
    return [f"{name}={count}" for name, count in sorted(counts.items())]


class RequestRecord(msgspec.Struct):
    """Facts of one request. None means not known."""

    id: str
    method: str
    path: str
    started: float = msgspec.field(default_factory=time.perf_counter)  # seconds, monotonic
    arrival: float = msgspec.field(default_factory=time.time)  # seconds since the epoch
    ended: float | None = None  # as `started`; None: it runs
    route: str | None = None  # of those that the ledger has rows for
    tenant: Tenant = DEFAULT
    engine: str | None = None  # its name; None: none was reached
    replica: str | None = None  # of several of that engine; None: it has only one
    block_size: int | None = None  # the engine's, in tokens
    retries: int = 0  # that the client's SDK made before this one
    attempts: int = 0  # times that it was sent to an engine
    deadline: Deadline = NO_DEADLINE
    trace: TraceContext = NO_TRACE
    status: int | None = None  # HTTP status sent; 499 when the client left first
    outcome: str = "ok"  # or: refused, failed, aborted, client_gone
    model: str | None = None
    ignored: str | None = None  # names in the body which nothing reads, typing errors among them
    stream: bool | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    matched_tokens: int | None = None  # what the engine's index found
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None  # of the completion
    reuse: ReuseReport | None = None  # None: no answer said anything, not even that it does not say
    expected: Expected = NOTHING_EXPECTED
    routed: Decision | None = None  # how its replica was chosen; None: none was
    finish: str | None = None  # of the first choice
    error: str | None = None  # its kind
    choices: int = 1  # that are generated side by side
    canon: CanonTold | None = None
    limited: str | None = None  # what it was refused by: requests, tokens, concurrency, body, prompts, queue
    told: list[tuple[bytes, bytes]] = []  # headers of its answer, whatever that is
    ttft_s: float | None = None  # from the first byte of the request to the engine's first event
    stages: Stages = msgspec.field(default_factory=Stages)

    def saw_events(self) -> None:
        """Note the time to first token, once, and when the newest came."""
        now = time.perf_counter()
        self.stages.saw_tokens(now)
        if self.ttft_s is None:
            self.ttft_s = now - self.started

    @property
    def seconds(self) -> float:
        """That it took, or has taken so far."""
        return (time.perf_counter() if self.ended is None else self.ended) - self.started

    def fields(self) -> dict[str, object]:
        """What the access line says; unknown values are left out."""
        reuse = self.reuse
        facts: dict[str, object] = {
            "id": self.id,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "outcome": self.outcome,
            "model": self.model,
            "tenant": None if self.tenant is DEFAULT else self.tenant.name,
            "engine": self.engine,
            "replica": self.replica,
            "attempts": self.attempts if self.attempts > 1 else None,
            "ignored": self.ignored,
            "stream": self.stream,
            **(self.canon.fields() if self.canon else {}),
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "reuse": None if reuse is None or reuse.status == "reported" else reuse.status,
            "completion_tokens": self.completion_tokens,
            "error": self.error,
            "limited": self.limited,
            "ttft_ms": None if self.ttft_s is None else round(self.ttft_s * 1000, 2),
            "total_ms": round(self.seconds * 1000, 2),
        }
        return {name: value for name, value in facts.items() if value is not None}


def attach(scope: Scope, record: RequestRecord) -> None:
    """Keep `record` with the request, for whoever handles it."""
    scope[_KEY] = record


def record_of(scope: Scope) -> RequestRecord:
    """The record which the outermost middleware attached."""
    return cast(RequestRecord, scope[_KEY])


def log_unexpected(record: RequestRecord, error: Exception) -> None:
    """Log an exception that nobody foresaw: its kind and where it was raised.

    Its own text is left out, since it may quote a prompt.
    """
    frames = "".join(traceback.format_tb(error.__traceback__))
    fields = {"id": record.id, "error": type(error).__name__, "frames": frames}
    log.error("unexpected exception", extra={"fields": fields})
