"""Whether a client that sends no more still waits for its answer.

HTTP/1.1 allows it to close its sending side behind the request. On the wire that looks as if it had closed all, which
is how clients leave. Only writing tells: who has gone answers with a reset, and the next write fails. So a few interim
answers are sent, which every client of HTTP/1.1 has to skip.
"""

import asyncio
from collections.abc import Callable

_WAITS_S = (0.0, 0.1, 1.0, 10.0)  # from one to the next; some clients take no more than five
_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


class StillThere:
    """Asks one client, until `over` says that there is nothing to ask any more: it has gone, or got something."""

    def __init__(self, transport: asyncio.Transport, over: Callable[[], bool]) -> None:
        self._transport = transport
        self._over = over
        self._asked = 0
        self._next: asyncio.TimerHandle | None = None

    def ask(self) -> None:
        """Now, and some more times later."""
        if self._over() or self._transport.is_closing():
            return
        self._transport.write(_INTERIM)
        self._asked += 1
        if self._asked < len(_WAITS_S):
            self._next = asyncio.get_running_loop().call_later(_WAITS_S[self._asked], self.ask)

    def end(self) -> None:
        """Ask no more, and hold on to nothing: it has gone."""
        if self._next is not None:
            self._next.cancel()
