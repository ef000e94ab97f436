"""What can go wrong in an engine, as one small tree.

EngineError
├── InvalidRequestError       the request itself is at fault (HTTP 400)
│   └── ContextLengthError    the prompt can never fit (HTTP 400, context_length_exceeded)
├── EngineOverloadedError     the bounded queue is full (HTTP 429)
├── EngineNotReadyError       still loading, draining or stopped (HTTP 503)
│   └── EngineUnfitError      as it is set up it must not have this request; waiting does not help (HTTP 503)
├── UnsupportedByEngineError  this engine cannot do what an operator asked for (HTTP 501)
└── EngineFailureError        the engine broke while it worked (HTTP 500)
    └── EngineTimeoutError    it took longer than it may (HTTP 504 before the first byte)
"""


class EngineError(Exception):
    """Root of everything an engine adapter raises on purpose."""


class InvalidRequestError(EngineError):
    """The request cannot be served as it is; `param` names the field at fault."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class ContextLengthError(InvalidRequestError):
    """The prompt is longer than the model's context, or than the cache can ever hold."""

    def __init__(self, message: str, *, prompt_tokens: int, limit: int, param: str | None = None) -> None:
        super().__init__(message, param=param, code="context_length_exceeded")
        self.prompt_tokens = prompt_tokens
        self.limit = limit


class EngineOverloadedError(EngineError):
    """Too many requests wait already; the client should come back later."""


class EngineNotReadyError(EngineError):
    """The engine does not take requests now: it loads, drains or has stopped."""


class EngineUnfitError(EngineNotReadyError):
    """As it is set up the engine must not have this request, until whoever runs it changes that."""


class UnsupportedByEngineError(EngineError):
    """This engine has no way to do what was asked for; the message says what is done instead."""


class EngineFailureError(EngineError):
    """The engine failed while it worked on this request; nothing more will come."""


class EngineTimeoutError(EngineFailureError):
    """The engine took longer than it may: it may work on the request still, so sending it again doubles the work."""
