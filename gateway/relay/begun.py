"""An answer whose first piece is there: from now on it is the client's, and no other replica can give it."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import msgspec

from engine_adapters.errors import EngineFailureError
from engine_adapters.remote.relay import RelayedAnswer

_STALL_S = 300.0


class Begun(msgspec.Struct):
    """One answer, and what is left of it."""

    answer: RelayedAnswer
    first: bytes  # piece of a stream; of what is none, the whole body; empty where there is none
    rest: AsyncIterator[bytes] | None = None  # of a stream
    stall_s: float = _STALL_S  # without a byte in its middle
    first_token: Callable[[], None] | None = None  # called once, when a stream's has come


class Held:
    """What has to be let go of when nobody wants an answer any more: its connection, and who reads from it."""

    __slots__ = ("_reading", "_relay")

    def __init__(self) -> None:
        self._relay: AbstractAsyncContextManager[RelayedAnswer] | None = None
        self._reading: AsyncGenerator[bytes] | None = None

    def entered(self, relay: AbstractAsyncContextManager[RelayedAnswer]) -> None:
        """There is an answer now."""
        self._relay = relay

    async def begin(self, answer: RelayedAnswer, engine: str, *, stream: bool) -> Begun:
        """Wait for the first piece. `stream`: whether one was asked for.

        Raises EngineFailureError, as `answer.chunks` does, and for a stream that ends before it begins.
        """
        if not answer.streams:
            begun = Begun(answer, await answer.whole())
        else:
            rest = answer.chunks()
            if isinstance(rest, AsyncGenerator):
                self._reading = rest
            begun = Begun(answer, await anext(rest, b""), rest)
        if not begun.first and stream and answer.status < 400:
            raise EngineFailureError(f"The engine {engine} ended its stream before it began.")
        return begun

    async def aclose(self) -> None:
        """Let go; again is of no effect."""
        relay, self._relay = self._relay, None
        reading, self._reading = self._reading, None
        try:
            if reading is not None:
                await reading.aclose()
        finally:
            if relay is not None:
                await relay.__aexit__(None, None, None)
