"""What one side of a connection lets the other ask for."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from engine_adapters.rpc.connection import Connection

# Called on the event loop with the connection and the arguments; gives a value, or an awaitable of one. One that is
# no coroutine must be quick.
Call: TypeAlias = Callable[..., Any]
Stream: TypeAlias = Callable[..., AsyncGenerator[Any, None]]


def _nothing(_: "Connection") -> None:
    """Nobody cares."""


@dataclass(slots=True)
class Service:
    """Names of calls and streams, and what answers them."""

    calls: dict[str, Call] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    closed: Callable[["Connection"], None] = _nothing  # the other side of a connection has gone
