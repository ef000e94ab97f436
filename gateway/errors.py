"""What the gateway answers when it says no, as one small tree and one wire shape.

GatewayError
├── ApiError            an HTTP answer in the shape {"error": {"message", "type", "param", "code"}}
├── ClientGoneError     the client closed its connection: nothing to answer
└── StreamAbortedError  an answer had begun and cannot be completed: the connection must not end cleanly
"""

from collections.abc import Mapping
from typing import Any

from engine_adapters.errors import (
    EngineError,
    EngineNotReadyError,
    EngineOverloadedError,
    EngineTimeoutError,
    EngineUnfitError,
    InvalidRequestError,
    UnsupportedByEngineError,
)


class GatewayError(Exception):
    """Root of everything the gateway raises on purpose."""


class ClientGoneError(GatewayError):
    """The client closed its connection before the answer was complete."""


class StreamAbortedError(GatewayError):
    """A stream broke after its first byte; the client was told in an error event."""


class ApiError(GatewayError):
    """One refusal or failure, as it goes onto the wire."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type_: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type_
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The JSON object of this error."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """HTTP 400: the request itself is at fault."""
    return ApiError(400, message, param=param, code=code)


def unsupported(message: str, param: str) -> ApiError:
    """HTTP 400: a part of the API which the model or kvgate does not have."""
    return invalid(message, param, "unsupported_value")


def context_too_long(prompt_tokens: int, limit: int, param: str, *, counted: bool = True) -> ApiError:
    """HTTP 400 with both numbers: the prompt leaves no room for a single token. Not `counted`: it may have more."""
    more = "" if counted else " or more"
    message = (
        f"This model's context is {limit} tokens, prompt and completion together, "
        f"but the prompt alone has {prompt_tokens} tokens{more}."
    )
    return invalid(message, param, "context_length_exceeded")


def overloaded(message: str, retry_after_s: int) -> ApiError:
    """HTTP 429: come back later."""
    headers = {"retry-after": str(retry_after_s)}
    return ApiError(429, message, type_="rate_limit_error", code="engine_overloaded", headers=headers)


def not_ready(detail: str, retry_after_s: int) -> ApiError:
    """HTTP 503: loading, draining or stopped."""
    headers = {"retry-after": str(retry_after_s)}
    said = detail.startswith("The engine ")  # of one of several, by its name
    message = detail if said else f"The engine does not take requests now: {detail}"
    return ApiError(503, message, type_="service_unavailable", code="engine_not_ready", headers=headers)


def unfit(detail: str) -> ApiError:
    """HTTP 503 that only an operator can end: no time to wait for, and SDKs are told not to try again."""
    headers = {"x-should-retry": "false"}
    return ApiError(503, detail, type_="service_unavailable", code="engine_not_ready", headers=headers)


def internal() -> ApiError:
    """HTTP 500 that tells nothing of the inside; the log has the rest under the request's id."""
    message = "The server failed while it worked on this request. Its x-request-id finds it in the log."
    return ApiError(500, message, type_="server_error", code="internal_error")


def from_engine(error: EngineError, retry_after_s: int) -> ApiError:
    """The wire form of what an engine adapter raised."""
    if isinstance(error, InvalidRequestError):
        return invalid(error.message, error.param, error.code)
    if isinstance(error, EngineOverloadedError):
        return overloaded(str(error) or "Too many requests wait already.", retry_after_s)
    if isinstance(error, EngineUnfitError):
        return unfit(str(error))
    if isinstance(error, EngineNotReadyError):
        return not_ready(str(error) or "it is not ready", retry_after_s)
    if isinstance(error, UnsupportedByEngineError):
        return ApiError(404, str(error), code="unsupported_route")
    if isinstance(error, EngineTimeoutError):
        message = "The engine took too long; what it did of this request was cancelled."
        return ApiError(504, message, type_="timeout_error", code="engine_timeout")
    message = "The engine failed while it worked on this request; nothing more of it will come."
    return ApiError(500, message, type_="server_error", code="engine_failure")
