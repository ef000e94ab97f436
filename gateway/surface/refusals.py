"""What goes wrong with a request, as its answer, its access line and its row say it."""

import logging

from engine_adapters.errors import EngineError, EngineFailureError
from gateway.errors import ApiError, from_engine, internal
from gateway.transport.record import RequestRecord, log_unexpected

log = logging.getLogger("kvgate.gateway")

_BROKEN = frozenset({500, 502, 504})  # an engine, or what stands before it, says that it failed


def refusal(error: Exception, record: RequestRecord, retry_after_s: int) -> ApiError:
    """The wire form of `error`, noted and logged as what it is."""
    answer = _noted(error, record, retry_after_s)
    record.error = answer.code or answer.type
    return answer


def _noted(error: Exception, record: RequestRecord, retry_after_s: int) -> ApiError:
    record.outcome = "refused"
    if isinstance(error, ApiError):
        if error.status in _BROKEN:
            record.outcome = "failed"
        return error
    if isinstance(error, EngineError) and not isinstance(error, EngineFailureError):
        return from_engine(error, retry_after_s)
    record.outcome = "failed"
    if not isinstance(error, EngineError):
        log_unexpected(record, error)
        return internal()
    log.error("the engine failed", extra={"fields": {"id": record.id, "error": str(error)}})
    return from_engine(error, retry_after_s)
