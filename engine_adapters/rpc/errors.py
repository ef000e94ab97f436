"""What can go wrong between two processes, and how what an engine raises crosses over.

RpcError
├── AwayError     the other process is not there
│   └── SilentError   it is, and did not answer in time
├── FrameError    it sent what is no frame
└── FailedError   what it was asked for went wrong there
"""

from typing import Any

from engine_adapters.errors import (
    ContextLengthError,
    EngineError,
    EngineFailureError,
    EngineNotReadyError,
    EngineOverloadedError,
    InvalidRequestError,
    UnsupportedByEngineError,
)


class RpcError(Exception):
    """Root of what this package raises."""


class AwayError(RpcError):
    """The other process is not there."""


class SilentError(AwayError):
    """The other process is there, and did not answer in time."""


class FrameError(RpcError):
    """The other side sent something that is no frame, or too large a one."""


class FailedError(RpcError):
    """A call failed on the other side, whose log says how."""


_PLAIN: dict[str, type[EngineError]] = {
    each.__name__: each
    for each in (
        EngineError,
        EngineFailureError,
        EngineNotReadyError,
        EngineOverloadedError,
        UnsupportedByEngineError,
    )
}


def told(error: Exception) -> tuple[str, str, dict[str, Any]]:
    """Kind, message and fields of an error as they go over a socket. Of a foreign one only its type's name."""
    if isinstance(error, ContextLengthError):
        fields = {"prompt_tokens": error.prompt_tokens, "limit": error.limit, "param": error.param}
        return "ContextLengthError", error.message, fields
    if isinstance(error, InvalidRequestError):
        return "InvalidRequestError", error.message, {"param": error.param, "code": error.code}
    if isinstance(error, AwayError):
        return "AwayError", str(error), {}
    kind = next((name for name, each in _PLAIN.items() if type(error) is each), None)
    if kind is None and isinstance(error, EngineError):
        kind = "EngineFailureError"
    return ("FailedError", type(error).__name__, {}) if kind is None else (kind, str(error), {})


def raised(kind: str, message: str, fields: dict[str, Any]) -> Exception:
    """The error that `told` told of."""
    if kind == "ContextLengthError":
        return ContextLengthError(message, **fields)
    if kind == "InvalidRequestError":
        return InvalidRequestError(message, **fields)
    if kind == "AwayError":
        return AwayError(message)
    own = _PLAIN.get(kind)
    return FailedError(f"the other process failed: {message}") if own is None else own(message)
