"""What one request did, collected while it runs, for its access line. Never any prompt or answer text."""

import logging
import time
import traceback
from dataclasses import dataclass, field
from typing import cast

from starlette.types import Scope

log = logging.getLogger("kvgate.gateway")

_KEY = "kvgate.record"


@dataclass(slots=True)
class RequestRecord:
    """Facts of one request. None means not known."""

    id: str
    method: str
    path: str
    started: float = field(default_factory=time.perf_counter)  # seconds, monotonic
    status: int | None = None  # HTTP status sent; 499 when the client left first
    outcome: str = "ok"  # or: refused, failed, aborted, client_gone
    model: str | None = None
    ignored: str | None = None  # names in the body which nothing reads, typing errors among them
    stream: bool | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    ttft_s: float | None = None  # from the first byte of the request to the engine's first event

    def saw_first_event(self) -> None:
        """Note the time to first token, once."""
        if self.ttft_s is None:
            self.ttft_s = time.perf_counter() - self.started

    def fields(self) -> dict[str, object]:
        """What the access line says; unknown values are left out."""
        facts: dict[str, object] = {
            "id": self.id,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "outcome": self.outcome,
            "model": self.model,
            "ignored": self.ignored,
            "stream": self.stream,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "ttft_ms": None if self.ttft_s is None else round(self.ttft_s * 1000, 2),
            "total_ms": round((time.perf_counter() - self.started) * 1000, 2),
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
