"""Notice that a client has gone, whatever the request is doing at that moment."""

import asyncio
from types import TracebackType
from typing import Self, cast

from starlette.types import Receive

from gateway.errors import ClientGoneError


class DisconnectGuard:
    """`async with DisconnectGuard(receive):` cancels its body when the client closes the connection.

    The cancellation leaves the block as ClientGoneError. Enter it when the request's body has been read, and
    leave it before the last byte of the answer goes out: a complete answer looks like a disconnect, too.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._gone = False

    async def __aenter__(self) -> Self:
        self._task = cast(asyncio.Task[object], asyncio.current_task())
        self._cancelling = self._task.cancelling()
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._watcher.cancel()
        if not self._gone:
            return
        # Same bookkeeping as asyncio.timeout(): a cancellation that came from elsewhere stays one.
        if self._task.uncancel() <= self._cancelling and exc_type is asyncio.CancelledError:
            raise ClientGoneError("left before its answer was complete") from exc

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._task.cancel()
