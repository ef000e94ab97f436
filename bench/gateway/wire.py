"""One connection of the load: as little HTTP as is needed, so that what is measured is the other side."""

import asyncio
import time
from dataclasses import dataclass
from typing import cast

_MARK = b"data: "
_PATH = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one request."""

    status: int  # 0: the connection broke
    events: int  # of a stream, [DONE] among them
    done: bool  # a stream came to its end, or a body was whole
    at: float  # when its last byte came, on `time.perf_counter`


BROKEN = Answer(0, 0, False, 0.0)


def request(body: bytes, key: str) -> bytes:
    """The bytes of one chat."""
    head = (
        f"POST {_PATH} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {key}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connection(asyncio.Protocol):
    """Sends one request after the other over a connection that stays open."""

    def __init__(self) -> None:
        self.open = False
        self._answer: asyncio.Future[Answer] | None = None
        self._head = bytearray()
        self._tail = b""

    @classmethod
    async def to(cls, port: int) -> "Connection":
        """A new one to a port of this machine."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, "127.0.0.1", port)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.open = True

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        self._ended(BROKEN)

    async def ask(self, sent: bytes) -> Answer:
        """Send one request, and wait for all of its answer."""
        if not self.open:
            return BROKEN
        self._head.clear()
        self._tail, self._events, self._left = b"", 0, -1
        self._in_body = self._chunked = False
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(sent)
        return await self._answer

    def close(self) -> None:
        """Hang up."""
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        if not self._in_body:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            head, data = bytes(self._head[:end]).lower(), bytes(self._head[end + 4 :])
            self._begin(head)
        self._body(data)

    def _begin(self, head: bytes) -> None:
        self._in_body = True
        self._status = int(head[9:12])
        at = head.find(b"content-length:")
        if at >= 0:
            self._left = int(head[at + 15 :].split(b"\r\n", 1)[0])
        else:
            self._chunked = True

    def _body(self, data: bytes) -> None:
        if not self._chunked:
            self._left -= len(data)
            if self._left <= 0:
                self._ended(Answer(self._status, 0, True, time.perf_counter()))
            return
        seen = self._tail + data
        # The tail is shorter than a mark, so none is counted twice.
        self._events += seen.count(_MARK)
        self._tail = seen[-5:]
        if seen.endswith(b"\r\n0\r\n\r\n") or data == b"0\r\n\r\n":
            self._ended(Answer(self._status, self._events, True, time.perf_counter()))

    def _ended(self, answer: Answer) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)
