"""What can go wrong between the gateway and an engine. Adapters turn it into errors of `engine_adapters.errors`.

TransportError
├── NoConnectionError      nobody listens, the name is not known, or connecting took too long
├── NoFreeConnectionError  as many connections as may be are in use
├── TooLargeError          the answer has more bytes than are taken
├── TooSlowError           a byte was waited for, or could not be sent, for too long
└── BrokenError            the connection ended, or what came is no HTTP
    └── UnheardError       it ended before a byte of the answer came
"""


class TransportError(Exception):
    """Root of them."""


class NoConnectionError(TransportError):
    """There is no connection, so nothing was sent."""


class NoFreeConnectionError(TransportError):
    """Nothing was sent: no connection became free in time."""


class TooSlowError(TransportError):
    """The engine did not send, or take, a byte in time."""


class TooLargeError(TransportError):
    """The answer has more bytes than whoever asked takes."""


class BrokenError(TransportError):
    """The connection ended before the answer did, or the answer is no HTTP."""


class UnheardError(BrokenError):
    """The connection ended before a byte of the answer came: on a kept one the request may not have been read."""
