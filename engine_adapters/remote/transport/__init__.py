"""HTTP/1.1 to one engine, for requests that are relayed: what it costs is paid for every request and every chunk.

The event loop's own transports with llhttp on top, and nothing that relaying has no use for: no redirects, no
proxies, no cookies, no content types. Small questions to engines, which nobody waits for, go over httpx.
"""

from engine_adapters.remote.transport.client import Bounds, EngineClient
from engine_adapters.remote.transport.errors import (
    BrokenError,
    NoConnectionError,
    NoFreeConnectionError,
    TooLargeError,
    TooSlowError,
    TransportError,
)
from engine_adapters.remote.transport.exchange import Exchange

__all__ = [
    "Bounds",
    "BrokenError",
    "EngineClient",
    "Exchange",
    "NoConnectionError",
    "NoFreeConnectionError",
    "TooLargeError",
    "TooSlowError",
    "TransportError",
]
