"""An answer whose first piece is there: from now on it is the client's, and no other replica can give it."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from engine_adapters.remote.relay import RelayedAnswer

_STALL_S = 300.0


@dataclass(slots=True)
class Begun:
    """One answer, and what is left of it."""

    answer: RelayedAnswer
    first: bytes  # piece of a stream; of what is none, the whole body; empty where there is none
    rest: AsyncIterator[bytes]  # of a stream
    stall_s: float = _STALL_S  # without a byte in its middle
    first_token: Callable[[], None] | None = None  # called once, when a stream's has come


async def begin(answer: RelayedAnswer, stack: AsyncExitStack) -> Begun:
    """Wait for the first piece; `stack` ends the reading. Raises EngineFailureError, as `answer.chunks` does."""
    rest = answer.chunks()
    if isinstance(rest, AsyncGenerator) and "event-stream" in answer.content_type:
        stack.push_async_callback(rest.aclose)
    first = await anext(rest, b"")
    if "event-stream" not in answer.content_type:
        first += b"".join([chunk async for chunk in rest])
    return Begun(answer, first, rest)
