"""Notice that a client has gone, whatever the request is doing at that moment."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, cast

from starlette.types import Receive, Scope

from gateway.errors import ClientGoneError

_KEY = "kvgate.client"


class Client(Protocol):
    """The connection of a request, from a server that tells of its end: no task has to wait for that then."""

    def when_gone(self, then: Callable[[], None]) -> None:
        """Call `then` once, soon, when the connection has ended, or has ended already."""

    def never_mind(self, then: Callable[[], None]) -> None:
        """Do not call it any more."""


def introduce(scope: Scope, client: Client) -> None:
    """Let the request know its client."""
    scope[_KEY] = client


class DisconnectGuard:
    """`with DisconnectGuard(receive, scope):` cancels its body when the client closes the connection.

    The cancellation leaves the block as ClientGoneError. Enter it when the request's body has been read, and
    leave it before the last byte of the answer goes out: a complete answer looks like a disconnect, too.
    """

    def __init__(self, receive: Receive, scope: Scope) -> None:
        self._receive = receive
        self._client = cast(Client | None, scope.get(_KEY))
        self._watcher: asyncio.Task[None] | None = None
        self._gone = self._over = False

    def __enter__(self) -> Self:
        self._task = cast(asyncio.Task[object], asyncio.current_task())
        self._cancelling = self._task.cancelling()
        if self._client is not None:
            self._client.when_gone(self._left)
        else:
            self._watcher = asyncio.create_task(self._watch())
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over = True
        if self._client is not None:
            self._client.never_mind(self._left)
        if self._watcher is not None:
            self._watcher.cancel()
        if not self._gone:
            return
        # Same bookkeeping as asyncio.timeout(): a cancellation that came from elsewhere stays one.
        if self._task.uncancel() <= self._cancelling and exc_type is asyncio.CancelledError:
            raise ClientGoneError("left before its answer was complete") from exc

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._left()

    def _left(self) -> None:
        if self._over:
            return
        self._gone = True
        self._task.cancel()
